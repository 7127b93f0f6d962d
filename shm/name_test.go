package shm

import (
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var longest = strings.Repeat("x", 200)

func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "A-z_0.9", "...", ".a", "-", longest} {
		require.NoError(t, ValidName(name), name)
	}
	for name, why := range map[string]string{
		"":            "empty",
		".":           "directory",
		"..":          "directory",
		longest + "x": "201 bytes long, more than 200",
		"a/b":         `byte '/' at 1`,
		"/a":          `byte '/' at 0`,
		"a b":         `byte ' ' at 1`,
		"a\x00":       `byte '\x00' at 1`,
		"é":           "at 0",
		"a~":          `byte '~' at 1`,
	} {
		err := ValidName(name)
		require.ErrorIs(t, err, syscall.EINVAL, name)
		require.ErrorContains(t, err, why, name)
	}
}

func FuzzValidName(f *testing.F) {
	for _, s := range []string{"", ".", "..", "a", "a/b", "\xff", longest, longest + "x"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`\A[A-Za-z0-9._-]{1,200}\z`)
	f.Fuzz(func(t *testing.T, name string) {
		err := ValidName(name)
		want := form.MatchString(name) && name != "." && name != ".."
		require.Equal(t, want, err == nil, "%q: %v", name, err)
		if err != nil {
			require.ErrorIs(t, err, syscall.EINVAL)
			return
		}
		path, err := namedPath(name)
		require.NoError(t, err)
		require.Equal(t, filepath.Clean(path), path)
		require.Equal(t, Dir, filepath.Dir(path))
	})
}

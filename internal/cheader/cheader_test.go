package cheader

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write include/shmsync.h")

const include = "../../include"

// The header in the tree is what Assemble makes of its parts.
func TestHeader(t *testing.T) {
	want, err := Assemble(filepath.Join(include, "parts"))
	require.NoError(t, err)
	path := filepath.Join(include, "shmsync.h")
	if *update {
		require.NoError(t, os.WriteFile(path, want, 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	if string(got) != string(want) {
		t.Error("include/shmsync.h is not what its parts make: go generate ./internal/cheader")
	}
}

// All names in the public part have the prefix of the library.
func TestNames(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(include, "shmsync.h"))
	require.NoError(t, err)
	for line := range strings.Lines(string(src)) {
		if m := regexp.MustCompile(`^#\s*define\s+(\w+)`).FindStringSubmatch(line); m != nil {
			require.Regexp(t, `^(SHMSYNC_|SHMI_|shmsync_|SYS_|F_OFD_|MADV_|O_TMPFILE|FALLOC_|_GNU_SOURCE)`, m[1])
		}
		if m := regexp.MustCompile(`^(?:[a-z][\w ]*[ *])(\w+)\(`).FindStringSubmatch(line); m != nil && !strings.HasPrefix(line, "typedef") && !strings.HasPrefix(line, "else") {
			require.Regexp(t, `^(shmsync_|shmi_|__attribute__)`, m[1], line)
		}
	}
}

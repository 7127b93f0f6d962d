package shm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNameOutlivesChdir: the name of a segment that was opened by a relative path leads to the segment after
// the process has changed its working directory.
func TestNameOutlivesChdir(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(top, "elsewhere", "sub"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join("elsewhere", "sub"), filepath.Join(top, "link")))
	for path, want := range map[string]string{
		"a":                     "a",
		"./b":                   "b",
		"elsewhere/../c":        "elsewhere/../c",
		"link/../d":             "link/../d", // in the directory elsewhere
		filepath.Join(top, "e"): "e",
	} {
		t.Run(want, func(t *testing.T) {
			t.Chdir(top)
			s, err := CreateAt(path, page, nil, nil)
			require.NoError(t, err)
			defer s.Close()
			o, err := OpenAt(path, nil)
			require.NoError(t, err)
			defer o.Close()
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			g, err := FromFile(f, nil)
			require.NoError(t, err)
			defer g.Close()
			t.Chdir("/")
			own, err := s.File().Stat()
			require.NoError(t, err)
			names := []string{s.Name(), o.Name()}
			if path != "a" { // the name of a file need not be a path
				names = append(names, g.Name())
			}
			for _, name := range names {
				require.Equal(t, top+"/"+want, name)
				st, err := os.Stat(name)
				require.NoError(t, err)
				require.True(t, os.SameFile(own, st), "%s is another file", name)
			}
		})
	}
}

// TestNameOutlivesALinkToTheWorkingDirectory: a process enters its working directory through a symbolic link, so the
// environment variable PWD contains the link. Later the link is removed. The name of the segment still leads to the
// segment.
func TestNameOutlivesALinkToTheWorkingDirectory(t *testing.T) {
	top := t.TempDir()
	link := filepath.Join(top, "current")
	require.NoError(t, os.Mkdir(filepath.Join(top, "old"), 0o700))
	require.NoError(t, os.Symlink("old", link))
	t.Chdir(link) // sets PWD, too
	s, err := CreateAt("./seg", page, nil, nil)
	require.NoError(t, err)
	defer s.Close()
	o, err := OpenAt("./seg", nil)
	require.NoError(t, err)
	defer o.Close()
	require.NoError(t, os.Remove(link))
	for _, name := range []string{s.Name(), o.Name()} {
		require.FileExists(t, name)
	}
}

// TestNameWithoutWorkingDirectory: the working directory was removed. A relative path that still leads
// somewhere can be used.
func TestNameWithoutWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	require.NoError(t, os.Mkdir(gone, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "seg"), make([]byte, page), 0o600))
	t.Chdir(gone)
	require.NoError(t, os.Remove(gone))
	s, err := OpenAt("../seg", nil)
	if err != nil { // some file systems have no ".." in a removed directory
		require.ErrorIs(t, err, os.ErrNotExist)
		return
	}
	require.NoError(t, s.Close())
}

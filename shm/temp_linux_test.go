package shm

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func openDir(t *testing.T, dir string) int {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestTempName(t *testing.T) {
	for _, base := range []string{"a", "a.b", "..", strings.Repeat("x", 255), strings.Repeat("ü", 124)} {
		name := tempName(base)
		require.True(t, isTempName(name), name)
		require.Equal(t, base[:min(len(base), maxNameLen)], tempBase(name))
		require.LessOrEqual(t, len(name), 255)
		require.Error(t, ValidName(name), "no named segment may look like a temporary file")
	}
	for _, name := range []string{
		"", ".", ".tmp~", "..tmp~", ".a.tmp~", ".a.1.tmp~", ".1.0123456789abcdef.tmp~",
		"a.1.0123456789abcdef.tmp~", ".a.1.0123456789abcdef.tmp", ".a.x.0123456789abcdef.tmp~",
		".a..0123456789abcdef.tmp~", ".a.1.0123456789abcdeX.tmp~", ".a.1.0123456789abcde.tmp~",
	} {
		require.False(t, isTempName(name), name)
	}
	require.True(t, isTempName(".a.1.0123456789abcdef.tmp~"))
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	dirfd := openDir(t, dir)
	create := func(name string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, page), 0o600))
	}
	dead, other, foreign, almost := tempName("seg"), tempName("other"), tempName("foreign"), ".seg.1.tmp~"
	for _, name := range []string{dead, other, foreign, almost, "seg"} {
		create(name)
	}
	link := tempName("link")
	require.NoError(t, os.Symlink("seg", filepath.Join(dir, link)))
	sub := tempName("dir")
	require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
	keep := []string{almost, "seg", link, sub}
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(filepath.Join(dir, foreign), 12345, -1))
		keep = append(keep, foreign)
	}
	live, liveName, err := openTemp(dirfd, "live")
	require.NoError(t, err)
	sweep(dirfd)
	require.ElementsMatch(t, append(keep, liveName), entries(t, dir))
	unix.Close(live) // has the same effect as the death of the creator
	sweep(dirfd)
	require.ElementsMatch(t, keep, entries(t, dir))
}

// TestSweepOfLinkedFiles: a temporary file counts as published only if it also has the name for which
// it was made. Another second name does not count.
func TestSweepOfLinkedFiles(t *testing.T) {
	dir := t.TempDir()
	dirfd := openDir(t, dir)
	live, temp, err := openTemp(dirfd, "seg.1")
	require.NoError(t, err)
	defer unix.Close(live)
	require.NoError(t, os.Link(filepath.Join(dir, temp), filepath.Join(dir, "by-somebody")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "seg.1"), nil, 0o600)) // a different file
	sweep(dirfd)
	require.ElementsMatch(t, []string{temp, "by-somebody", "seg.1"}, entries(t, dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "seg.1")))
	require.NoError(t, os.Link(filepath.Join(dir, temp), filepath.Join(dir, "seg.1")))
	sweep(dirfd)
	require.ElementsMatch(t, []string{"by-somebody", "seg.1"}, entries(t, dir))
}

// TestLongNamesOfWideCharacters: a segment can have any name that the file system accepts, even if each character has
// several bytes. The temporary name is then short enough, too.
func TestLongNamesOfWideCharacters(t *testing.T) {
	t.Setenv("SHMSYNC_DISABLE", "otmpfile")
	dir := t.TempDir()
	name := strings.Repeat("ü", 124)
	s, err := CreateAt(filepath.Join(dir, name), page, nil, nil)
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, []string{name}, entries(t, dir))
}

// TestModeComesLast: another process may find a file before it is complete. Until then, the mode keeps
// other users from opening it.
func TestModeComesLast(t *testing.T) {
	for _, disable := range []string{"", "otmpfile"} {
		t.Setenv("SHMSYNC_DISABLE", disable)
		dir := t.TempDir()
		path := filepath.Join(dir, "seg")
		var during fs.FileMode
		s, err := CreateAt(path, page, func(s *Segment) error {
			info, err := s.File().Stat()
			require.NoError(t, err)
			during = info.Mode()
			return nil
		}, &Options{Mode: 0o664})
		require.NoError(t, err)
		defer s.Close()
		require.Equal(t, fs.FileMode(0o600), during)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o664), info.Mode())
	}
}

func TestPublish(t *testing.T) {
	for name, publish := range map[string]func(dirfd int, temp, base string) error{
		"rename": publish, "link": publishByLink,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			dirfd := openDir(t, dir)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "temp"), []byte("new"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "taken"), []byte("old"), 0o600))
			require.ErrorIs(t, publish(dirfd, "temp", "taken"), fs.ErrExist)
			require.NoError(t, publish(dirfd, "temp", "free"))
			require.Equal(t, []string{"free", "taken"}, entries(t, dir))
			got, err := os.ReadFile(filepath.Join(dir, "taken"))
			require.NoError(t, err)
			require.Equal(t, "old", string(got))
		})
	}
}

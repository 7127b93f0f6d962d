package proctest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDirNotOn checks that DirNotOn returns a directory that is not on a file system of the given types, and that the
// directory is removed at the end of the test. If no directory is suitable, DirNotOn must skip the test.
func TestDirNotOn(t *testing.T) {
	fileSystem := func(dir string) uint32 {
		var fs unix.Statfs_t
		require.NoError(t, unix.Statfs(dir, &fs))
		return uint32(fs.Type)
	}
	dir, err := os.MkdirTemp("/dev/shm", "shmsync-test-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	t.Setenv("TMPDIR", dir)
	var got string
	tb := runFake(t, func(tb testing.TB) {
		got = DirNotOn(tb)
		require.Equal(t, dir, filepath.Dir(got))
		require.DirExists(t, got)
	})
	require.False(t, tb.Failed() || tb.Skipped(), tb.output())
	require.NoDirExists(t, got)

	tmpfs := fileSystem(dir)
	tb = runFake(t, func(tb testing.TB) {
		got = DirNotOn(tb, tmpfs)
		require.NotEqual(t, tmpfs, fileSystem(got))
	})
	require.False(t, tb.Failed(), tb.output())
	if tb.Skipped() {
		t.Skip("needs a directory that is not on the file system of /dev/shm")
	}
	require.NoDirExists(t, got)

	types := []uint32{tmpfs, fileSystem("/var/tmp"), fileSystem(".")}
	if cache, err := os.UserCacheDir(); err == nil {
		if _, err := os.Stat(cache); err == nil {
			types = append(types, fileSystem(cache))
		}
	}
	tb = runFake(t, func(tb testing.TB) { DirNotOn(tb, types...) })
	require.True(t, tb.Skipped())
}

package proctest

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// DirNotOn returns a new directory on a file system of another type than the given ones, which are numbers such as
// unix.TMPFS_MAGIC. It looks for one in the temporary directory, which is a tmpfs on some systems, in /var/tmp, in the
// user's cache and in the directory of the package. Without one it skips the test.
func DirNotOn(t testing.TB, types ...uint32) string {
	t.Helper()
	parents := []string{os.TempDir(), "/var/tmp"}
	if cache, err := os.UserCacheDir(); err == nil {
		parents = append(parents, cache)
	}
	for _, parent := range append(parents, ".") {
		var fs unix.Statfs_t
		if unix.Statfs(parent, &fs) != nil || slices.Contains(types, uint32(fs.Type)) {
			continue
		}
		dir, err := os.MkdirTemp(parent, "shmsync-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Errorf("proctest: %v", err)
			}
		})
		return dir
	}
	Skip(t, "needs a directory on a disk in which it may write: the temporary directory, /var/tmp, the user's cache and its own have none")
	return ""
}

package proctest

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// DirNotOn returns a new directory on a file system of another type than the given types, which are numbers such as
// unix.TMPFS_MAGIC. It tries the temporary directory, which is a tmpfs on some systems, /var/tmp, the user's cache
// and the directory of the package. If none of them is suitable, it skips the test.
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

// NeedAttr skips the test if this machine cannot start processes with the given attributes. For example, root may not
// make a namespace in most containers. The parameter what says in the message what the attributes make, such as "a
// process group". The given helpers, which the test would have started, count as used; see [Skip].
func NeedAttr(t testing.TB, attr *syscall.SysProcAttr, what string, helpers ...string) {
	t.Helper()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"true", "-test.list=^$"}, &syscall.ProcAttr{Sys: attr})
	if err == nil {
		_, err = syscall.Wait4(pid, nil, 0, nil)
	}
	switch {
	case err == nil:
	case slices.ContainsFunc(refusals, func(e syscall.Errno) bool { return err == e }):
		Skip(t, fmt.Sprintf("needs to make %s: %v", what, err), helpers...)
	default:
		t.Fatalf("cannot make %s: %v", what, err)
	}
}

// refusals are the errors with which the kernel says that a process may not have certain attributes, or that the
// kernel does not know these attributes. After other errors, such as a lack of memory, a test fails and is not
// skipped.
var refusals = []syscall.Errno{syscall.EPERM, syscall.EACCES, syscall.ENOSYS, syscall.EINVAL, syscall.ENOSPC}

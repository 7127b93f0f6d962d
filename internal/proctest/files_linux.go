package proctest

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/linger"
)

// KeepFile copies the process's descriptors of the file at path into this process. The copies refer to the same
// open file descriptions, as after a fork, so the locks of the process stay when the process ends. KeepFile
// imitates a kernel that frees the memory, and so the locks, of an ended process late. The function close closes
// the copies. If it is not called, they are closed at the end of the test.
func (p *Proc) KeepFile(t testing.TB, path string) (close func()) {
	t.Helper()
	copies := p.copies(t, func(_, at string) bool { return at == path })
	if len(copies) == 0 {
		t.Fatalf("cannot copy a descriptor of %s from %v", path, p)
	}
	close = sync.OnceFunc(func() { closeAll(copies) })
	t.Cleanup(close)
	return close
}

// copies returns copies of the descriptors of the process for which wanted returns true. wanted
// gets the number and the file of a descriptor. A process that has ended has no descriptors.
func (p *Proc) copies(t testing.TB, wanted func(fd, path string) bool) (copies []int) {
	t.Helper()
	of, err := unix.PidfdOpen(p.Pid(), 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		t.Fatalf("proctest: pidfd of %s: %v", p, err)
	}
	defer unix.Close(of)
	fds := filepath.Join("/proc", strconv.Itoa(p.Pid()), "fd")
	entries, _ := os.ReadDir(fds)
	for _, e := range entries {
		if at, err := os.Readlink(filepath.Join(fds, e.Name())); err != nil || !wanted(e.Name(), at) {
			continue // not a wanted descriptor, or one that was just closed
		}
		n, _ := strconv.Atoi(e.Name())
		fd, err := unix.PidfdGetfd(of, n, 0)
		switch err {
		case nil:
			copies = append(copies, fd)
		case unix.EBADF, unix.ESRCH: // it has been closed, or the process has ended
		default:
			t.Fatalf("proctest: descriptor %d of %s: %v", n, p, err)
		}
	}
	return copies
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// keepLocks keeps the byte locks of a process that is about to be killed, for as long as the settings of package
// linger say.
func (p *Proc) keepLocks(t testing.TB) {
	t.Helper()
	d := linger.Time()
	if d == 0 {
		return
	}
	copies := p.copies(t, func(fd, _ string) bool {
		b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid()), "fdinfo", fd))
		return linger.Locks(b)
	})
	go func() {
		<-p.Done()
		time.Sleep(d)
		closeAll(copies)
	}()
}

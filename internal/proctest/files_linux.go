package proctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// KeepFile takes copies of the process's descriptors of the file at path, as a child of fork would. So the locks of
// these descriptors stay when the process ends, as they do for a while when the kernel keeps its memory. close closes
// the copies; the end of the test does so, too.
func (p *Proc) KeepFile(t testing.TB, path string) (close func()) {
	t.Helper()
	copies := p.copies(func(_, at string) bool { return at == path })
	if len(copies) == 0 {
		t.Fatalf("cannot copy a descriptor of %s from %v", path, p)
	}
	close = sync.OnceFunc(func() { closeAll(copies) })
	t.Cleanup(close)
	return close
}

// copies are copies of those descriptors of the process that are wanted, by their number and file.
func (p *Proc) copies(wanted func(fd, path string) bool) (copies []int) {
	of, err := unix.PidfdOpen(p.Pid(), 0)
	if err != nil {
		return nil
	}
	defer unix.Close(of)
	fds := filepath.Join("/proc", strconv.Itoa(p.Pid()), "fd")
	entries, _ := os.ReadDir(fds)
	for _, e := range entries {
		if at, err := os.Readlink(filepath.Join(fds, e.Name())); err != nil || !wanted(e.Name(), at) {
			continue // a descriptor of something else, or one that has just been closed
		}
		n, _ := strconv.Atoi(e.Name())
		if fd, err := unix.PidfdGetfd(of, n, 0); err == nil {
			copies = append(copies, fd)
		}
	}
	return copies
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// byteLock is the line of fdinfo of a lock of one byte behind the header of an arena.
var byteLock = regexp.MustCompile(`(?m)^lock:.* OFDLCK .* ([0-9]{4,}) [0-9]{4,}$`)

// linger makes the byte lock of a process that is about to be killed stay after its end, for as long as
// SHMSYNC_TEST_LINGER says. The kernel does so for up to 70 ms, since Linux 6.17 and with more than four CPUs: it keeps
// the memory of a process that has started a thread shortly before, and the file that has the lock is mapped.
func (p *Proc) linger() {
	d, err := time.ParseDuration(os.Getenv("SHMSYNC_TEST_LINGER"))
	if err != nil {
		return
	}
	copies := p.copies(func(fd, _ string) bool {
		b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid()), "fdinfo", fd))
		return byteLock.Match(b)
	})
	go func() {
		<-p.Done()
		time.Sleep(d)
		closeAll(copies)
	}()
}

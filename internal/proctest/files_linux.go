package proctest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// KeepFile takes copies of the process's descriptors of the file at path, as a child of fork would. So the locks of
// these descriptors stay when the process ends, as they do for a while when the kernel keeps its memory. close closes
// the copies; the end of the test does so, too.
func (p *Proc) KeepFile(t testing.TB, path string) (close func()) {
	t.Helper()
	of, err := unix.PidfdOpen(p.Pid(), 0)
	must(t, err)
	defer unix.Close(of)
	fds := filepath.Join("/proc", strconv.Itoa(p.Pid()), "fd")
	entries, err := os.ReadDir(fds)
	must(t, err)
	var copies []int
	for _, e := range entries {
		if at, err := os.Readlink(filepath.Join(fds, e.Name())); err != nil || at != path {
			continue // a descriptor of something else, or one that has just been closed
		}
		fd, err := strconv.Atoi(e.Name())
		must(t, err)
		kept, err := unix.PidfdGetfd(of, fd, 0)
		must(t, err)
		copies = append(copies, kept)
	}
	if len(copies) == 0 {
		t.Fatalf("%v has no descriptor of %s", p, path)
	}
	close = func() {
		for _, fd := range copies {
			unix.Close(fd)
		}
		copies = nil
	}
	t.Cleanup(close)
	return close
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

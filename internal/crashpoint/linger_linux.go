//go:build crashpoint

package crashpoint

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/linger"
)

// keepLocks starts a process that keeps the byte locks of this process after its death, for the time linger.Time.
// Package proctest does the same for processes that a test kills, but it cannot know that a process is about to die at
// a crash point.
func keepLocks() {
	d := linger.Time()
	if d == 0 {
		return
	}
	keeper := exec.Command("sleep", fmt.Sprint(d.Seconds()))
	entries, err := os.ReadDir("/proc/self/fd")
	must(err)
	for _, e := range entries {
		if b, _ := os.ReadFile("/proc/self/fdinfo/" + e.Name()); !linger.Locks(b) {
			continue // a descriptor that has no byte lock, or was closed meanwhile
		}
		n, err := strconv.Atoi(e.Name())
		must(err)
		fd, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 0)
		must(err)
		keeper.ExtraFiles = append(keeper.ExtraFiles, os.NewFile(uintptr(fd), "arena"))
	}
	must(keeper.Start())
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("crashpoint: %v", err))
	}
}

//go:build crashpoint

package crashpoint

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// byteLock is the line of fdinfo of a lock of one byte behind the header of an arena.
var byteLock = regexp.MustCompile(`(?m)^lock:.* OFDLCK .* ([0-9]{4,}) [0-9]{4,}$`)

// linger starts a process that keeps this one's byte locks for as long as SHMSYNC_TEST_LINGER says. Package
// proctest does that for the processes that it kills, but cannot do it for one that dies here.
func linger() {
	d, err := time.ParseDuration(os.Getenv("SHMSYNC_TEST_LINGER"))
	if err != nil {
		return
	}
	keeper := exec.Command("sleep", fmt.Sprint(d.Seconds()))
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if b, _ := os.ReadFile("/proc/self/fdinfo/" + e.Name()); !byteLock.Match(b) {
			continue
		}
		n, _ := strconv.Atoi(e.Name())
		if fd, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			keeper.ExtraFiles = append(keeper.ExtraFiles, os.NewFile(uintptr(fd), "arena"))
		}
	}
	if err := keeper.Start(); err != nil {
		panic(fmt.Sprintf("crashpoint: %v", err))
	}
}

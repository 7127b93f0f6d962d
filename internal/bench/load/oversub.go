//go:build linux

package load

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench"
)

// collectOversub derives the metrics that result.go also derives for a lock cell.
func collectOversub(rep *bench.Repetition, a *bench.Account) {
	if total := a.Total(); a.Counter != total {
		rep.Violate("counter under the lock is %d after %d acquisitions", a.Counter, total)
	}
	countHandovers(rep, a.Page, hostPlaces())
	rep.Throughput(a)
}

// schedIdle makes every thread of this process run only while nothing else wants to run.
func schedIdle() error {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("sched_setattr: %w", err)
	}
	return nil
}

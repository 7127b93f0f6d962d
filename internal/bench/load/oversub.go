//go:build linux

package load

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench"
)

// collectOversub derives the metrics of an oversub measurement, which has more workers than CPUs. A lock measurement
// has the same metrics.
func collectOversub(rep *bench.Repetition, a *bench.Account) {
	if total := a.Total(); a.Counter != total {
		rep.Violate("counter under the lock is %d after %d acquisitions", a.Counter, total)
	}
	countHandovers(rep, a.Page, hostPlaces())
	rep.Throughput(a)
}

// schedIdle makes the threads of this process run only while no other program wants to run.
func schedIdle() error {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("sched_setattr: %w", err)
	}
	return nil
}

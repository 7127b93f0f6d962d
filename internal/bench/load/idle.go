//go:build linux

package load

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// These are the indices of metrics in the slot of the waiting thread of an idle measurement.
const (
	metricCPU    = iota // CPU time of the waiting process, in ns
	metricWaited        // duration of the wait, in ns
)

// workIdle measures what a long wait costs the waiting process. Thread 0 holds the lock, or does not pass the token,
// until the measurement stops. Thread 1 waits for the lock or the token, and reads the CPU time of its whole process.
func workIdle(t *thread) error {
	var hold, release, wait func()
	switch v := t.view.(type) {
	case bench.Locker:
		hold, release, wait = v.Lock, v.Unlock, v.Lock
	case bench.Token:
		hold, release, wait = func() {}, func() { v.Pass(1) }, func() { v.Await() }
	default:
		return fmt.Errorf("%s does not implement %T or %T", t.Subject.Name(), (*bench.Locker)(nil), (*bench.Token)(nil))
	}
	if t.index == 0 {
		hold()
		t.await()
		for t.Phase.Load() != control.PhaseStop {
			time.Sleep(2 * time.Millisecond)
		}
		release()
		t.end()
		return nil
	}
	t.await()
	cpu, t0 := processCPU(), shmsync.Monotonic()
	wait()
	t.slot.Metrics[metricCPU] = float64(processCPU() - cpu)
	t.slot.Metrics[metricWaited] = float64(shmsync.Monotonic() - t0)
	if t.Phase.Load() != control.PhaseStop {
		t.violate("got it after %v, while the holder held", time.Duration(shmsync.Monotonic()-t0))
	}
	t.slot.Ops, t.slot.Total = 1, 1
	t.end()
	return nil
}

// processCPU returns the CPU time that this process has used, in nanoseconds.
func processCPU() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

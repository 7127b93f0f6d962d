//go:build linux

package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

// idleLeast is how long the waiter of an idle cell waits at least.
const idleLeast = 250 * time.Millisecond

// Metrics of an idle cell, by their place in the slot of the waiter.
const (
	metricCPU    = iota // ns of CPU of the waiting process
	metricWaited        // ns that it waited
)

// workIdle measures what a long wait costs the process that waits. Thread 0
// holds the lock, or keeps the token, for as long as the cell lasts; thread 1
// waits for it and looks at its whole process's CPU time.
func workIdle(t *thread) error {
	var hold, release, wait func()
	switch v := t.view.(type) {
	case locker:
		hold, release, wait = v.Lock, v.Unlock, v.Lock
	case token:
		hold, release, wait = func() {}, func() { v.Pass(1) }, func() { v.Await() }
	default:
		return fmt.Errorf("%s does not implement %T or %T", t.subject.Name(), (*locker)(nil), (*token)(nil))
	}
	if t.index == 0 {
		hold()
		t.await()
		for t.phase.Load() != phaseStop {
			time.Sleep(2 * time.Millisecond)
		}
		release()
		t.end()
		return nil
	}
	t.await()
	cpu, t0 := processCPU(), shmsync.Monotonic()
	wait()
	t.slot.metrics[metricCPU] = float64(processCPU() - cpu)
	t.slot.metrics[metricWaited] = float64(shmsync.Monotonic() - t0)
	if t.phase.Load() != phaseStop {
		t.violate("got it after %v, while the holder held", time.Duration(shmsync.Monotonic()-t0))
	}
	t.slot.ops, t.slot.total = 1, 1
	t.end()
	return nil
}

// processCPU is the CPU time that this process has used, in nanoseconds.
func processCPU() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

//go:build linux

package control

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

// WaitRound sleeps until the value of w is at least round.
func WaitRound(w *atomic.Uint32, round uint32) {
	for v := w.Load(); v < round; v = w.Load() {
		shmsync.Wait(FutexWord(w), v, 0)
	}
}

// Announce sets w to round and wakes the threads that wait for it.
func Announce(w *atomic.Uint32, round uint32) {
	w.Store(round)
	shmsync.Wake(FutexWord(w), 1<<20)
}

// SleepUntil sleeps until an absolute CLOCK_MONOTONIC instant.
func SleepUntil(ns int64) {
	ts := unix.NsecToTimespec(ns)
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}

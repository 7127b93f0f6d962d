package prims

import (
	"errors"

	"github.com/shmsync/shmsync"
)

// What those who wait for a part of a CohortMutex do besides.

// errOutOfPatience is what becomes of a waiter whose patience is at its end.
var errOutOfPatience = errors.New("out of patience")

// impatient reports whether a waiter has slept for as long as it may.
func (w *waiter) impatient() bool {
	return w.patience != 0 && w.since != 0 && shmsync.Monotonic()-w.since >= w.patience
}

// stirs says that somebody goes to sleep, so that who comes does not just take the
// lock.
func (w *waiter) stirs() {
	if w.stir != nil && w.stir.Load() == 0 {
		w.stir.CompareAndSwap(0, uint32(cohortStirred))
	}
}

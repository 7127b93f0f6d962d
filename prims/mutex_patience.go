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

// giveWay is that of its CohortMutex, for one that was woken. Who asks for the
// hand-off has lost long enough.
func (w *waiter) giveWay() {
	if w.cohort != nil && w.slept {
		w.inVain = !w.starving && w.cohort.giveWay(w.node, w.door)
	}
}

// favoured reports whether it has the door of a node that goes before others: then it
// spins although others sleep, whom it is to overtake.
func (w *waiter) favoured() bool { return w.door && w.cohort.favours(w.node) }

// stirs says that somebody goes to sleep, so that who comes does not just take the
// lock.
func (w *waiter) stirs() {
	if w.stir != nil && w.stir.Load() == 0 {
		w.stir.CompareAndSwap(0, uint32(cohortStirred))
	}
}

// mayHandOff reports whether the last hand-off is long enough ago. Each leaves the
// lock idle until the waiter runs, so they are rationed.
func (m *Mutex) mayHandOff(now int64) bool {
	handed := m.words.handed.Load()
	if handed&handedLocally != 0 {
		return true // that one cost nothing
	}
	ago := now - int64(handed)
	return ago < 0 || ago > handOffEvery
}

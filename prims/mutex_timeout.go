package prims

import (
	"errors"

	"github.com/shmsync/shmsync"
)

// This file has what a waiter for a part of a CohortMutex does besides.

// errTimedOut is what becomes of a waiter whose timeout is at its end.
var errTimedOut = errors.New("out of timeout")

// timedOut reports whether a waiter has slept for as long as it may.
func (w *waiter) timedOut() bool {
	return w.timeout != 0 && w.since != 0 && shmsync.Monotonic()-w.since >= w.timeout
}

// giveWay is that of its CohortMutex, for a waiter that was woken. A waiter that asks for
// the hand-off has lost long enough.
func (w *waiter) giveWay() {
	if w.cohort != nil && w.slept {
		w.inVain = !w.starving && w.cohort.giveWay(w.node, w.localLock)
	}
}

// favoured reports whether it has the local lock of a node that goes before others: then it
// spins although others sleep, whom it is to overtake.
func (w *waiter) favoured() bool { return w.localLock && w.cohort.favours(w.node) }

// noteContention says that a waiter goes to sleep, so that a comer does not just take the lock.
func (w *waiter) noteContention() {
	if w.turnWord != nil && w.turnWord.Load() == 0 {
		w.turnWord.CompareAndSwap(0, uint32(cohortContended))
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

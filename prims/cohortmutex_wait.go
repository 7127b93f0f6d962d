package prims

import (
	"errors"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/park"
)

// errTimedOut ends a wait whose timeout is over.
var errTimedOut = errors.New("timed out")

// waitVariant is what a waiter for the global lock or a local lock of a CohortMutex does in
// addition to a waiter for a Mutex. A waiter for a plain Mutex has the zero value, whose methods
// do nothing.
type waitVariant struct {
	// timeout is how long the waiter waits from its first sleep, in nanoseconds; 0 means for
	// ever.
	timeout int64
	// turn is the cohortTurn in which the waiter records that it sleeps.
	turn *atomic.Uint32
	// cohort is the CohortMutex for whose global lock it waits; nil at a local lock.
	cohort    *CohortMutex
	node      int
	localLock bool // the waiter has the local lock of its node
	inVain    bool // the result of giveWay
}

// timedOut reports whether a waiter has waited for its timeout since its first sleep.
func (v *waitVariant) timedOut(since int64) bool {
	return v.timeout != 0 && since != 0 && shmsync.Monotonic()-since >= v.timeout
}

// bound makes a sleep end with the timeout.
func (v *waitVariant) bound(s *park.SleepSpec, since, now int64) {
	if v.timeout != 0 {
		s.Bounded = max(since+v.timeout-now, 1)
	}
}

// overtakes reports whether a waiter has the local lock of the node whose turn it is. Such a
// waiter spins although others sleep, and overtakes them.
func (v *waitVariant) overtakes() bool {
	return v.localLock && v.cohort.favours(v.node)
}

// beforeSleep records that a waiter goes to sleep, so that a newcomer does not take the lock at
// once.
func (v *waitVariant) beforeSleep() {
	if v.turn != nil && v.turn.Load() == 0 {
		v.turn.CompareAndSwap(0, uint32(cohortContended))
	}
}

// woken lets waiters of another node go first, if it is their turn. A waiter that asks for the
// handoff has lost long enough and does not let others go first.
func (v *waitVariant) woken(w *waiter) {
	if v.cohort != nil && w.slept {
		v.inVain = !w.starving && v.cohort.giveWay(v.node, v.localLock)
	}
}

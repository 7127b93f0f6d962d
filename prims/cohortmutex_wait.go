package prims

import (
	"errors"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/park"
)

// errTimedOut ends a wait whose timeout is over.
var errTimedOut = errors.New("timed out")

// waitVariant is what a waiter for the global lock or a local lock of a CohortMutex does
// besides what every waiter for a Mutex does. That of a waiter for a plain Mutex is zero:
// its methods do nothing.
type waitVariant struct {
	// timeout is how long it waits from its first sleep, in nanoseconds; 0 is for ever.
	timeout int64
	// turn is the cohortTurn that is to say that a waiter sleeps.
	turn *atomic.Uint32
	// cohort is the CohortMutex whose global lock it waits for, from a node; nil at a
	// local lock.
	cohort    *CohortMutex
	node      int
	localLock bool // it has that node's local lock
	inVain    bool // what giveWay returned
}

// timedOut reports whether a waiter has waited for as long as it may, since its first
// sleep.
func (v *waitVariant) timedOut(since int64) bool {
	return v.timeout != 0 && since != 0 && shmsync.Monotonic()-since >= v.timeout
}

// bound has a sleep end with the timeout.
func (v *waitVariant) bound(s *park.SleepSpec, since, now int64) {
	if v.timeout != 0 {
		s.Bounded = max(since+v.timeout-now, 1)
	}
}

// overtakes reports whether a waiter has the local lock of the node whose turn it is: then
// it spins although others sleep, and will overtake them.
func (v *waitVariant) overtakes() bool {
	return v.localLock && v.cohort.favours(v.node)
}

// beforeSleep says that a waiter goes to sleep, so that a newcomer does not just take the
// lock.
func (v *waitVariant) beforeSleep() {
	if v.turn != nil && v.turn.Load() == 0 {
		v.turn.CompareAndSwap(0, uint32(cohortContended))
	}
}

// woken lets waiters of another node go first, if it is their turn. A waiter that asks for
// the handoff has lost for long enough.
func (v *waitVariant) woken(w *waiter) {
	if v.cohort != nil && w.slept {
		v.inVain = !w.starving && v.cohort.giveWay(v.node, v.localLock)
	}
}

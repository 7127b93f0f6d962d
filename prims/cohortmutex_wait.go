package prims

import (
	"errors"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/park"
)

// errTimedOut is the error of a wait whose timeout has passed.
var errTimedOut = errors.New("timed out")

// waitVariant holds what a waiter for the global lock or for a local lock of a CohortMutex does in addition to
// a waiter for a plain Mutex. For a plain Mutex it has the zero value, whose methods do nothing.
type waitVariant struct {
	// timeout is how long the waiter waits, in nanoseconds, counted from its first sleep. 0 means that there is
	// no limit.
	timeout int64
	// turn is the word in which the waiter records that it sleeps; see cohortTurn.
	turn *atomic.Uint32
	// cohort is the CohortMutex for whose global lock the waiter waits. It is nil for a waiter at a
	// local lock.
	cohort    *CohortMutex
	node      int
	localLock bool // the waiter has the local lock of its node
	inVain    bool // the result of giveWay
}

// timedOut reports whether the timeout has passed. The parameter since is the time when the first sleep of the
// waiter began, or 0 before the first sleep.
func (v *waitVariant) timedOut(since int64) bool {
	return v.timeout != 0 && since != 0 && shmsync.Monotonic()-since >= v.timeout
}

// bound limits the sleep s so that it ends when the timeout passes.
func (v *waitVariant) bound(s *park.SleepSpec, since, now int64) {
	if v.timeout != 0 {
		s.Bounded = max(since+v.timeout-now, 1)
	}
}

// overtakes reports whether the waiter has the local lock of the node whose turn it is. Such a waiter spins
// although other waiters sleep, so it can take the lock before them.
func (v *waitVariant) overtakes() bool {
	return v.localLock && v.cohort.favours(v.node)
}

// beforeSleep marks the turn word before the waiter goes to sleep, so that a new caller does not take a free lock at
// once.
func (v *waitVariant) beforeSleep() {
	if v.turn != nil && v.turn.Load() == 0 {
		v.turn.CompareAndSwap(0, uint32(cohortContended))
	}
}

// woken is called when the waiter was woken. If it is the turn of another node, woken lets the waiters of that
// node go first. The exception is a waiter that has waited so long that it asks the holder to hand it the lock.
func (v *waitVariant) woken(w *waiter) {
	if v.cohort != nil && w.slept {
		v.inVain = !w.starving && v.cohort.giveWay(v.node, v.localLock)
	}
}

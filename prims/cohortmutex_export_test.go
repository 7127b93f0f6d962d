//go:build linux

package prims

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Constants for the tests of package prims_test.

const (
	CohortPasses = cohortPasses
	CohortQuiet  = cohortQuiet
)

// Waiters is how many goroutines of this process sleep or park, waiting for c.
func (c *CohortMutex) Waiters() int { return c.global.Waiters() }

// OwnerWord is the value of the owner word.
func (c *CohortMutex) OwnerWord() uint32 { return c.global.OwnerWord() }

// HeldByUs reports whether the owner word says that this process holds c, or
// recovers it.
func (c *CohortMutex) HeldByUs() bool { return c.global.HeldByUs() }

// Turn is the value of the word turn; SetTurn overwrites it.
func (c *CohortMutex) Turn() uint32     { return c.words.turn.Load() }
func (c *CohortMutex) SetTurn(v uint32) { c.words.turn.Store(v) }

// SeenTurn is the turn that the fast path reads.
func (c *CohortMutex) SeenTurn() uint32 { return *c.turn }

// LocalLock is the owner word of a local lock; LocalLockWaiters is how many goroutines of this
// process wait there.
func (c *CohortMutex) LocalLock(k int) uint32     { return c.localLocks[k].mutex.owner.Load() }
func (c *CohortMutex) LocalLockWaiters(k int) int { return c.localLocks[k].mutex.Waiters() }

// LocalLockSpin is the spin budget of local lock k.
func (c *CohortMutex) LocalLockSpin(k int) time.Duration { return c.localLocks[k].mutex.Spin() }

// TakeLocalLock takes local lock k, and LeaveLocalLock releases it.
func (c *CohortMutex) TakeLocalLock(k int)  { c.localLocks[k].mutex.Lock() }
func (c *CohortMutex) LeaveLocalLock(k int) { c.localLocks[k].mutex.Unlock() }

// Shut reports whether this process bypasses local lock k.
func (c *CohortMutex) Shut(k int) bool { return c.localLocks[k].shut.Load() > shmsync.Monotonic() }

// Announced reports whether a waiter sleeps for the lock itself.
func (c *CohortMutex) Announced() bool { return c.global.wakeWord.Announced() }

// Object is the object under c.
func (c *CohortMutex) Object() arenakernel.Object { return c.object }

// Yields reports whether a waiter of a node lets others go first.
func (c *CohortMutex) Yields(node int) bool { return c.yields(node) }

// SetCohortDefer changes how long a waiter lets others go first, in this process.
func SetCohortDefer(ns int64) (old int64) {
	old, cohortDefers = cohortDefers, ns
	return old
}

// SetCohortIdle changes how long a lock is left free for the turn of another node.
func SetCohortIdle(ns int64) (old int64) {
	old, cohortIdles = cohortIdles, ns
	return old
}

// SetCohortUnresponsive changes for how long a node counts as unresponsive, and is not let go
// first.
func SetCohortUnresponsive(ns int64) (old int64) {
	old, cohortUnresponsiveFor = cohortUnresponsiveFor, ns
	return old
}

// MakeResponsive makes unresponsive nodes count as responsive again.
func (c *CohortMutex) MakeResponsive() { c.unresponsive.Store(1) }

// SetKnowsNodes changes whether new handles believe that callers know their node.
func SetKnowsNodes(f func() bool) (old func() bool) {
	old, knowsNodes = knowsNodes, f
	return old
}

// Prefers reports whether a handle uses local locks.
func (c *CohortMutex) Prefers() bool { return c.prefers }

// CohortTurnWord makes a word that says whose turn it is.
func CohortTurnWord(node, quiet, passes int) uint32 {
	return uint32(makeCohortTurn(node, quiet, passes))
}

// Body is the offset and the length of the words of c.
func (c *CohortMutex) Body() (off, size uint64) {
	return uint64(c.object.Body), cohortBytes(c.nodes)
}

// SetCohortStarves changes the time from which the timeout at a local lock is computed, in this
// process.
func SetCohortStarves(ns int64) (old int64) {
	old, cohortStarves = cohortStarves, ns
	return old
}

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

// Waiters returns how many goroutines of this process sleep or are parked while they wait for c.
func (c *CohortMutex) Waiters() int { return c.global.Waiters() }

// OwnerWord returns the value of the owner word.
func (c *CohortMutex) OwnerWord() uint32 { return c.global.OwnerWord() }

// HeldByUs reports whether the owner word says that this process holds c, or
// recovers it.
func (c *CohortMutex) HeldByUs() bool { return c.global.HeldByUs() }

// Turn returns the turn word, which says whose waiters go first. SetTurn overwrites it.
func (c *CohortMutex) Turn() uint32     { return c.words.turn.Load() }
func (c *CohortMutex) SetTurn(v uint32) { c.words.turn.Store(v) }

// SeenTurn returns the turn word as the fast path sees it.
func (c *CohortMutex) SeenTurn() uint32 { return *c.turn }

// LocalLock returns the owner word of a local lock. LocalLockWaiters returns how many goroutines of
// this process wait for it.
func (c *CohortMutex) LocalLock(k int) uint32     { return c.localLocks[k].mutex.owner.Load() }
func (c *CohortMutex) LocalLockWaiters(k int) int { return c.localLocks[k].mutex.Waiters() }

// LocalLockSpin returns the spin budget of local lock k.
func (c *CohortMutex) LocalLockSpin(k int) time.Duration { return c.localLocks[k].mutex.Spin() }

// TakeLocalLock locks local lock k, and LeaveLocalLock unlocks it.
func (c *CohortMutex) TakeLocalLock(k int)  { c.localLocks[k].mutex.Lock() }
func (c *CohortMutex) LeaveLocalLock(k int) { c.localLocks[k].mutex.Unlock() }

// Shut reports whether this process bypasses local lock k.
func (c *CohortMutex) Shut(k int) bool { return c.localLocks[k].shut.Load() > shmsync.Monotonic() }

// Announced reports whether a waiter sleeps for the global lock.
func (c *CohortMutex) Announced() bool { return c.global.wakeWord.Announced() }

// Object returns the object of c.
func (c *CohortMutex) Object() arenakernel.Object { return c.object }

// Yields reports whether a waiter of the given NUMA node lets waiters of other nodes go first.
func (c *CohortMutex) Yields(node int) bool { return c.yields(node) }

// SetCohortDefer changes how long a waiter of this process lets waiters of other nodes go first.
func SetCohortDefer(ns int64) (old int64) {
	old, cohortDefers = cohortDefers, ns
	return old
}

// SetCohortIdle changes how long a waiter leaves a free lock to the waiters of the node whose turn it is.
func SetCohortIdle(ns int64) (old int64) {
	old, cohortIdles = cohortIdles, ns
	return old
}

// SetCohortUnresponsive changes how long a node is unresponsive, so that waiters do not let it go first.
func SetCohortUnresponsive(ns int64) (old int64) {
	old, cohortUnresponsiveFor = cohortUnresponsiveFor, ns
	return old
}

// MakeResponsive ends the time during which this process treats nodes as unresponsive.
func (c *CohortMutex) MakeResponsive() { c.unresponsive.Store(1) }

// SetKnowsNodes replaces the function that tells new handles whether callers know their node.
func SetKnowsNodes(f func() bool) (old func() bool) {
	old, knowsNodes = knowsNodes, f
	return old
}

// Prefers reports whether a handle uses local locks.
func (c *CohortMutex) Prefers() bool { return c.prefers }

// CohortTurnWord returns a turn word that has the given fields.
func CohortTurnWord(node, quiet, passes int) uint32 {
	return uint32(makeCohortTurn(node, quiet, passes))
}

// Body returns the offset and the length of the words of c.
func (c *CohortMutex) Body() (off, size uint64) {
	return uint64(c.object.Body), cohortBytes(c.nodes)
}

// SetCohortStarves changes the timeout of the waiters of this process at a local lock. The timeout is a multiple of ns.
func SetCohortStarves(ns int64) (old int64) {
	old, cohortStarves = cohortStarves, ns
	return old
}

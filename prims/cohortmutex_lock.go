package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("cohortmutex.lock.local")
	_ = crashpoint.Register("cohortmutex.lock.global")
	_ = crashpoint.Register("cohortmutex.lock.turn")
	_ = crashpoint.Register("cohortmutex.lock.left")
)

const (
	// cohortShut is the number of timeouts for which a process bypasses a local lock whose holder seems to be
	// stopped. See enter.
	cohortShut = 10
	// cohortUnresponsive is how long a process treats other nodes as unresponsive, and does not let their waiters go
	// first. The time begins when the process has let these waiters go first, but none of them took the lock.
	cohortUnresponsive = starveAfter
	// cohortDefer is how long a waiter lets waiters of other nodes go first while the lock is held. If the lock
	// then becomes free, the waiter waits once more for the same time. The time is about the cost of a sleep and
	// a wake.
	cohortDefer = 40_000 // ns
	// cohortIdle is how long a waiter leaves a free lock to the waiters on the node of the last holder. This
	// time is much longer than a spinning waiter needs to take the lock.
	cohortIdle = 1_000 // ns
)

// cohortDefers, cohortIdles, cohortUnresponsiveFor and cohortStarves have the values of the constants
// cohortDefer, cohortIdle, cohortUnresponsive and starveAfter. They are variables so that tests can change
// them.
var cohortDefers, cohortIdles, cohortUnresponsiveFor, cohortStarves int64 = cohortDefer, cohortIdle, cohortUnresponsive, starveAfter

// cohortLocalLock is where the waiters of one NUMA node wait. The holder of the local lock competes
// for the global lock, and releases the local lock as soon as it has the global lock.
type cohortLocalLock struct {
	mutex *Mutex
	shut  atomic.Int64 // this process bypasses the local lock until this time, CLOCK_MONOTONIC ns; 0: it does not
}

// buildLocalLock makes a handle on local lock k of o. A local lock is never biased towards its last holder,
// because many threads compete for it. A bias only pays if one process takes a lock again and again. The policy of a
// local lock is PolicyRelease, so no process has to repair it. The option Repair is set in case a peer has
// overwritten the policy.
func buildLocalLock(a *arenakernel.Arena, o arenakernel.Object, k int) *Mutex {
	m := buildMutexAt(a, o, o.Body+cohortLocalLockOff(k), &MutexOptions{Checked: true, Repair: func() error { return nil }})
	m.localLock, m.internal, m.inner = true, true, true
	return m
}

// taken reports whether the local lock is held. If so, its holder waits for the global lock.
func (d *cohortLocalLock) taken() bool { return ownerWord(d.mutex.owner.Load()).held() }

// lockOrPanic is the slow path of Lock. It is not inlined, so that Lock is small enough to be inlined.
//
//go:noinline
func (c *CohortMutex) lockOrPanic() {
	if err := c.lockSlow(nil); err != nil {
		panic(waysOut(err))
	}
}

// lockSlow is Lock after its first try has failed. ctx may be nil.
func (c *CohortMutex) lockSlow(ctx context.Context) error {
	g := c.global
	if !c.prefers {
		return g.lockSlow(ctx)
	}
	if !g.queue.Enter() {
		return g.closed()
	}
	defer g.queue.Exit()
	node := c.node()
	// Take the global lock if it is free and this node need not let another node go first. If ctx has ended, this
	// call cannot wait, so it takes a free lock even if it is the turn of another node.
	if (!c.yields(node) || ctx != nil && ctx.Err() != nil) && g.tryLockSlow() {
		c.took(node, false, false)
		return nil
	}
	err := c.lockByLocalLock(ctx, node)
	if err != nil && g.repair != nil && isOwnerDead(err) {
		// A repair may take long, so this process repairs without the local lock.
		if err = g.lockSlow(ctx); err == nil {
			c.took(node, false, false)
		}
	}
	return err
}

// tryLockSlow is TryLock after its first try has failed.
func (c *CohortMutex) tryLockSlow() bool {
	if !c.global.tryLockSlow() {
		return false
	}
	if c.prefers {
		c.took(c.node(), false, false)
	}
	return true
}

// node returns the index of the local lock for the NUMA node on which the caller runs.
func (c *CohortMutex) node() int {
	node, ok := park.NodeNow()
	if !ok {
		return 0
	}
	return int(node % uint32(len(c.localLocks)))
}

// lockByLocalLock takes the local lock of the node, and then the global lock. If the call cannot get the local
// lock, it takes only the global lock.
func (c *CohortMutex) lockByLocalLock(ctx context.Context, node int) error {
	d := &c.localLocks[node]
	has, met := d.enter(ctx, c)
	if has {
		defer d.leave()
		crashpoint.Hit("cohortmutex.lock.local")
	}
	w := waiter{m: c.global, cancel: park.CancelBy(ctx),
		variant: waitVariant{turn: &c.words.turn, cohort: c, node: node, localLock: has}}
	w.variant.inVain = c.giveWay(node, has)
	if c.global.queue.Closing() {
		return c.global.closed() // the handle is being closed, so this call must not wait
	}
	// The argument false makes acquire not call repair. A repair may take long, and this process may hold the local
	// lock, for which the other waiters of the node wait.
	err := w.acquire(false)
	w.cancel.Stop()
	if err != nil {
		return err
	}
	race.Acquire(c.global.key)
	c.global.counts.holds(met || w.met)
	c.took(node, met, w.variant.inVain)
	return nil
}

// took is called after the caller got the global lock. It stores in the arena which node's waiters go first from now
// on; see cohortTurn. If met is true, the caller had to wait for its local lock. inVain is the result of giveWay.
func (c *CohortMutex) took(node int, met, inVain bool) {
	crashpoint.Hit("cohortmutex.lock.global")
	t := cohortTurn(c.words.turn.Load())
	crowded := met || c.global.wakeWord.Announced() || c.crowdedAt(node) || c.others(node) && !c.isUnresponsive()
	anew := inVain || t.over() && (!c.others(node) || c.isUnresponsive())
	if next := t.after(node, crowded, anew); next != t {
		c.words.turn.Store(uint32(next))
	}
	crashpoint.Hit("cohortmutex.lock.turn")
}

// crowdedAt reports whether a waiter sleeps at the local lock of a node.
func (c *CohortMutex) crowdedAt(node int) bool { return c.localLocks[node].mutex.wakeWord.Announced() }

// others reports whether a waiter of another node waits for the global lock.
func (c *CohortMutex) others(node int) bool {
	for k := range c.localLocks {
		if k != node && c.localLocks[k].taken() {
			return true
		}
	}
	return false
}

// yields reports whether a waiter of this node has to leave a free lock to waiters of other nodes. During the turn
// of another node, the waiter yields to waiters of that node, if there are any. After the turn of its own node, the
// waiter yields to waiters of all other nodes.
func (c *CohortMutex) yields(node int) bool {
	switch t := cohortTurn(c.words.turn.Load()); {
	case t.node() < 0 || t.node() >= len(c.localLocks):
		return false
	case t.node() == node:
		return t.over() && c.others(node) && !c.isUnresponsive()
	default:
		return !t.over() && c.localLocks[t.node()].taken()
	}
}

// favours reports whether it is the turn of this node, so that its waiters go before waiters of
// other nodes.
func (c *CohortMutex) favours(node int) bool {
	t := cohortTurn(c.words.turn.Load())
	return t.node() == node && !t.over()
}

// isUnresponsive reports whether this process has lately let waiters of other nodes go first and none of them took
// the lock. The holder of a local lock may be stopped, or it may sleep: a free lock does not wake a sleeping waiter.
// A sleeping waiter gets the lock when it has waited so long that a release hands the lock to it.
func (c *CohortMutex) isUnresponsive() bool {
	until := c.unresponsive.Load()
	if until == 0 {
		return false
	}
	if shmsync.Monotonic() < until {
		return true
	}
	c.unresponsive.CompareAndSwap(until, 0)
	return false
}

// giveWay lets waiters of other nodes go first, for a bounded time. The result inVain is true if the turn of the
// caller's own node is over, and yet no waiter of another node has taken the lock, although the lock was free.
//
// A waiter without a local lock stops spinning here as soon as another waiter sleeps at the global lock. Otherwise
// many waiters without a local lock could spin at the same time.
func (c *CohortMutex) giveWay(node int, localLock bool) (inVain bool) {
	if !c.yields(node) {
		return false
	}
	g := c.global
	spins := c.words.global.spin.Load() != spinNever
	if spins && g.variant.beginSpin() {
		defer g.variant.endSpin()
	} else {
		spins = false
	}
	inVain = true // for a waiter that may not spin: it skips the loop, so it goes first itself
	waited := false
	if spins {
		free := int64(-1) // the time since which the lock is free; -1 if it is held
		park.SpinFor(2*cohortDefers, func(spent int64) bool {
			inVain, waited = false, true
			o := ownerWord(g.owner.Load())
			switch {
			case !c.yields(node):
				return true
			case o == makeOwner(kindReserved, g.name):
				return true // the lock is reserved for a waiter of this process
			case !o.free():
				free = -1
				return spent >= cohortDefers || !localLock && g.wakeWord.Announced()
			case free < 0:
				free = spent
			}
			if cohortTurn(c.words.turn.Load()).node() != node {
				return spent >= cohortDefers || spent-free >= cohortIdles
			}
			// The turn of this node is over, and no other node has begun a turn. The waiters of other nodes
			// may sleep, and they need time to wake up when the lock becomes free.
			inVain = spent-free >= cohortDefers
			return inVain
		})
	}
	inVain = inVain && cohortTurn(c.words.turn.Load()).node() == node && c.yields(node)
	if inVain && waited {
		c.unresponsive.Store(shmsync.Monotonic() + cohortUnresponsiveFor)
	}
	return inVain
}

// enter tries to take the local lock. The first result, has, reports whether it took the local lock. The second
// result, met, reports whether the local lock was held before, so that the caller had to wait or give up. enter
// fails if the timeout passes, if ctx ends, if the handle is being closed, or if a peer has damaged the local
// lock. The caller then goes on without the local lock.
func (d *cohortLocalLock) enter(ctx context.Context, c *CohortMutex) (has, met bool) {
	m := d.mutex
	if m.owner.CompareAndSwap(0, uint32(m.name)) {
		return true, false
	}
	if shut := d.shut.Load(); shut != 0 && shmsync.Monotonic() < shut || !m.queue.Enter() {
		return false, true
	}
	defer m.queue.Exit()
	before, hold := m.wakes(), c.hold()
	w := waiter{m: m, cancel: park.CancelBy(ctx), variant: waitVariant{timeout: c.timeout(), turn: &c.words.turn}}
	err := w.lock()
	w.cancel.Stop()
	if err == errTimedOut && m.wakes() == before && c.hold() != hold {
		// While this caller waited, the global lock has had another holder, and yet nobody has released the
		// local lock. So the holder of the local lock may be stopped.
		d.shut.Store(shmsync.Monotonic() + cohortShut*w.variant.timeout)
	}
	return err == nil, true
}

// timeout is how long a waiter sleeps at its local lock. After that it goes on to the global lock without the local
// lock, because the holder of the local lock may be stopped.
//
// A holder that runs keeps the local lock for a shorter time. For the time starveAfter, other waiters may take the
// global lock before this holder. After that, a release hands the global lock to this holder. Only waiters of other
// nodes that have waited longer come first, and each of them delays this holder by the time starveAfter at most.
func (c *CohortMutex) timeout() int64 { return int64(2+len(c.localLocks)) * cohortStarves }

// leave releases the local lock.
func (d *cohortLocalLock) leave() {
	d.mutex.Unlock()
	crashpoint.Hit("cohortmutex.lock.left")
}

// cohortHold identifies one hold of the global lock by the values of three words. A later hold has other
// values.
type cohortHold struct{ owner, wakes, turn uint32 }

// hold returns a cohortHold for the present hold of the global lock.
func (c *CohortMutex) hold() cohortHold {
	turn := c.words.turn.Load()
	if turn == uint32(cohortContended) {
		turn = 0 // a waiter that goes to sleep stores cohortContended, and the hold is still the same
	}
	return cohortHold{c.global.owner.Load(), c.global.wakes(), turn}
}

// wakes returns the value of the wake word of m, which counts the wakes of m's waiters.
func (m *Mutex) wakes() uint32 { return m.words.wake.Load() >> 1 }

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
	// cohortShut is for how many timeouts a process passes a local lock by after a waiter
	// of it has waited there in vain.
	cohortShut = 10
	// cohortUnresponsive is how long a process does without letting those of other nodes go first
	// after a turn of its own, once they did not come.
	cohortUnresponsive = starveAfter
	// cohortDefer is how long a waiter lets other waiters go first, while the lock is held
	// and then while it is free. It is about the cost of a sleep and a wake.
	cohortDefer = 40_000 // ns
	// cohortIdle is for how long a lock stays free for a waiter near its last holder: much
	// longer than a spinning waiter needs to take it.
	cohortIdle = 1_000 // ns
)

// cohortDefers, cohortIdles, cohortUnresponsiveFor and cohortStarves are the constants, unless a
// test says otherwise.
var cohortDefers, cohortIdles, cohortUnresponsiveFor, cohortStarves int64 = cohortDefer, cohortIdle, cohortUnresponsive, starveAfter

// cohortLocalLock is where the waiters of a node wait: its holder may go for the lock, and
// gives the local lock back as soon as it has the lock.
type cohortLocalLock struct {
	mutex *Mutex
	shut  atomic.Int64 // until when this process passes it by, CLOCK_MONOTONIC ns
}

// buildLocalLock makes a handle on local lock k of o. Its holds are never biased: local locks are
// there to be competed for. A Repair is there for bytes that a peer wrote, which may say
// another policy than PolicyRelease.
func buildLocalLock(a *arenakernel.Arena, o arenakernel.Object, k int) *Mutex {
	m := buildMutexAt(a, o, o.Body+cohortLocalLockOff(k), &MutexOptions{Checked: true, Repair: func() error { return nil }})
	m.queueLock, m.internal = true, true
	return m
}

// taken reports whether the local lock is held: its holder waits before the lock.
func (d *cohortLocalLock) taken() bool { return ownerWord(d.mutex.owner.Load()).held() }

// lockOrPanic is the slow path of Lock, out of line as Mutex's.
//
//go:noinline
func (c *CohortMutex) lockOrPanic() {
	if err := c.lockSlow(nil); err != nil {
		panic(waysOut(err))
	}
}

// lockSlow is Lock without its first try. ctx may be nil.
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
	// A lock that is free is taken although ctx has ended, whichever node's turn it is.
	if (!c.yields(node) || ctx != nil && ctx.Err() != nil) && g.tryLockSlow() {
		c.took(node, false, false)
		return nil
	}
	err := c.lockByLocalLock(ctx, node)
	if err != nil && g.repair != nil && isOwnerDead(err) {
		// Not with a local lock: a repair may take long.
		if err = g.lockSlow(ctx); err == nil {
			c.took(node, false, false)
		}
	}
	return err
}

// tryLockSlow is TryLock without its first try.
func (c *CohortMutex) tryLockSlow() bool {
	if !c.global.tryLockSlow() {
		return false
	}
	if c.prefers {
		c.took(c.node(), false, false)
	}
	return true
}

// node is the index of the local lock where the caller waits.
func (c *CohortMutex) node() int {
	node, ok := park.NodeNow()
	if !ok {
		return 0
	}
	return int(node % uint32(len(c.localLocks)))
}

// lockByLocalLock takes the lock as a waiter of its node. It does without the local lock where
// that cannot be had.
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
		return c.global.closed() // a Mutex has no such time before its first check
	}
	// A repair is run without a local lock.
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

// took is called after the lock was got: it says which node's turn it is. met says that the
// caller had to wait for its local lock, inVain what giveWay returned.
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

// crowdedAt reports whether a waiter sleeps at a local lock.
func (c *CohortMutex) crowdedAt(node int) bool { return c.localLocks[node].mutex.wakeWord.Announced() }

// others reports whether a waiter of another node waits before the lock.
func (c *CohortMutex) others(node int) bool {
	for k := range c.localLocks {
		if k != node && c.localLocks[k].taken() {
			return true
		}
	}
	return false
}

// yields reports whether one of a node is to let others have a free lock: those of the
// node whose turn it is, if there are any, or those of other nodes when that is over.
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

// favours reports whether one of a node goes before those of others.
func (c *CohortMutex) favours(node int) bool {
	t := cohortTurn(c.words.turn.Load())
	return t.node() == node && !t.over()
}

// isUnresponsive reports whether waiters of other nodes did not come lately when they were let
// go first: the holder of their local lock is stopped, or sleeps and is not woken by a lock
// that stays free. The hand-off is for those.
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

// giveWay lets others go first, for a bounded time. inVain is true where the turn of its own node
// is over, and others have not come though the lock was free for them. A waiter without a local
// lock may be one of many, and sleeps where all of them would.
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
	inVain = true // where nobody spins nobody is let go first
	waited := false
	if spins {
		free := int64(-1) // since when the lock is free
		park.SpinFor(2*cohortDefers, func(spent int64) bool {
			inVain, waited = false, true
			o := ownerWord(g.owner.Load())
			switch {
			case !c.yields(node):
				return true
			case o == makeOwner(kindReserved, g.name):
				return true // for this process, which sleeps or waits here
			case !o.free():
				free = -1
				return spent >= cohortDefers || !localLock && g.wakeWord.Announced()
			case free < 0:
				free = spent
			}
			if cohortTurn(c.words.turn.Load()).node() != node {
				return spent >= cohortDefers || spent-free >= cohortIdles
			}
			// Those of other nodes may have to wake up first, since it is free.
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

// enter takes the local lock. has says whether it got it, met whether it was held before.
// It does not get it if a timeout passes, ctx ends, or a peer has spoilt it: the caller
// then goes to the lock without.
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
		// The lock went from one process to another, and no holder of the local lock left. That holder
		// may be stopped.
		d.shut.Store(shmsync.Monotonic() + cohortShut*w.variant.timeout)
	}
	return err == nil, true
}

// timeout is how long a waiter sleeps at its local lock before it goes to the lock itself:
// the holder of the local lock may be stopped. A holder that runs may lose for starveAfter.
// After that it may lose to hand-offs to other waiters, one in each starveAfter.
func (c *CohortMutex) timeout() int64 { return int64(2+len(c.localLocks)) * cohortStarves }

// leave gives the local lock back.
func (d *cohortLocalLock) leave() {
	d.mutex.Unlock()
	crashpoint.Hit("cohortmutex.lock.left")
}

// cohortHold is one hold of the lock, as far as its words tell.
type cohortHold struct{ owner, wakes, turn uint32 }

// hold is the present hold.
func (c *CohortMutex) hold() cohortHold {
	turn := c.words.turn.Load()
	if turn == uint32(cohortContended) {
		turn = 0 // a sleeper has no hold
	}
	return cohortHold{c.global.owner.Load(), c.global.wakes(), turn}
}

// wakes counts the wakes of m's waiters.
func (m *Mutex) wakes() uint32 { return m.words.wake.Load() >> 1 }

//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// TestCondSignalledDiesBesideStrangers: a signalled waiter dies. All processes that have opened the
// Cond are stopped, so a process that has not opened it passes the Signal on.
func TestCondSignalledDiesBesideStrangers(t *testing.T) {
	for _, op := range []string{"csignal", "cbroadcast"} {
		t.Run(op, func(t *testing.T) {
			a := newArena(t, nil) // this process opens the Cond only at the end
			owner, x, z := remoteHand(t, a, "owner"), remoteHand(t, a, "x"), remoteHand(t, a, "z")
			x.blocked(t, task{Op: "cwait", Name: "c"})
			id := z.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
			owner.must(t, task{Op: "clock", Name: "c"})
			if op == "cbroadcast" {
				z.proc.Stop(t) // so that z stays in its wait, although the Broadcast wakes it
			}
			owner.must(t, task{Op: op, Name: "c"})
			owner.proc.Stop(t)
			if op == "csignal" {
				z.proc.Stop(t)
			}
			x.proc.Kill(t)
			state := func() string {
				o, err := objectNamed(a, "c")
				require.NoError(t, err)
				return a.Inspect(arena.Object(o)).State
			}
			eventually(t, "the wait of z was woken, and no other", state, func() bool { return state() == "0 waiting, 1 woken" })
			z.proc.Cont(t)
			require.Empty(t, z.wait(t, id).Err)
			owner.proc.Cont(t)
			owner.must(t, task{Op: "cunlock", Name: "c"})
			require.Equal(t, prims.CondState{}, condAt(t, a, "c").State())
			z.proc.Kill(t)
			owner.proc.Kill(t)
			alone(t, a, 1)
			sound(t, a)
		})
	}
}

// TestCondReapListsNodesLast: a reap stores the count of deaths, and only then lists the wait nodes of the dead. In
// the opposite order, a participant that died in between would be in the count without its nodes in the list, and no
// later reap would look for them.
func TestCondReapListsNodesLast(t *testing.T) {
	a := newArena(t, nil)
	require.True(t, condAt(t, a, "c").ReapAfter())
}

// TestCondManySignalledDie: many signalled waiters die at once. Each Signal passes on to a waiter that
// already waited when the Signal was given.
func TestCondManySignalledDie(t *testing.T) {
	const signals = 20
	a := newArena(t, nil)
	owner, x, here := remoteHand(t, a, "owner"), remoteHand(t, a, "x"), localHand(a)
	for range signals {
		x.blocked(t, task{Op: "cwait", Name: "c"})
	}
	var ids []int
	for range signals + 5 {
		ids = append(ids, here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"}))
	}
	owner.must(t, task{Op: "clock", Name: "c"})
	owner.must(t, task{Op: "csignal", Name: "c", N: signals})
	c := condAt(t, a, "c")
	require.Equal(t, prims.CondState{Waiting: signals + 5, Woken: signals}, c.State())
	later := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	x.proc.Kill(t)
	for _, id := range ids[:signals] {
		require.Empty(t, here.wait(t, id).Err)
	}
	condWaits(t, c, 6)
	here.must(t, task{Op: "cbroadcast", Name: "c", Lock: "local"})
	for _, id := range append(ids[signals:], later) {
		require.Empty(t, here.wait(t, id).Err)
	}
	owner.proc.Kill(t)
	alone(t, a, 1)
	sound(t, a)
}

// TestCondBroadcastTurnsOfTheDead: a Broadcast covers all waiters, and wakes a first batch, whose process
// dies. The other waiters are then woken. In the end Flying is 0: the number of woken waits does not
// include waits of the dead process.
func TestCondBroadcastTurnsOfTheDead(t *testing.T) {
	const waiters = 40 // more than two batches
	a := newArena(t, nil)
	owner, x, here := remoteHand(t, a, "owner"), remoteHand(t, a, "x"), localHand(a)
	for range waiters {
		x.blocked(t, task{Op: "cwait", Name: "c"})
	}
	var ids []int
	for range waiters {
		ids = append(ids, here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"}))
	}
	owner.must(t, task{Op: "clock", Name: "c"})
	owner.must(t, task{Op: "cbroadcast", Name: "c"})
	x.proc.Kill(t)
	for _, id := range ids {
		require.Empty(t, here.wait(t, id).Err)
	}
	c := condAt(t, a, "c")
	eventually(t, "no wait is left", c.String, func() bool { return c.State() == prims.CondState{} && c.Flying() == 0 })
	owner.proc.Kill(t)
	alone(t, a, 1)
	sound(t, a)
}

// TestCondSignalsPassOnInTheirOrder: one more waiter comes after each of several Signals. Then all signalled waiters
// die, and their Signals pass on. A Signal may pass on only to a waiter that came before this Signal. So a later Signal
// must not wake the only waiter to which an earlier Signal may pass on.
func TestCondSignalsPassOnInTheirOrder(t *testing.T) {
	const signals = 6
	for _, again := range []bool{false, true} { // in the second case the wait nodes of x are in another order
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			a := newArena(t, nil)
			owner, x, here := remoteHand(t, a, "owner"), remoteHand(t, a, "x"), localHand(a)
			wait := task{Op: "cwait", Name: "c"}
			var ids []int
			for range signals {
				ids = append(ids, x.blocked(t, wait))
			}
			if again {
				owner.must(t, task{Op: "cbroadcast", Name: "c"})
				for _, id := range ids {
					require.Empty(t, x.wait(t, id).Err)
				}
				for range signals {
					x.blocked(t, wait)
				}
			}
			ids = []int{here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})}
			owner.must(t, task{Op: "clock", Name: "c"})
			for range signals {
				owner.must(t, task{Op: "csignal", Name: "c"})
				ids = append(ids, here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"}))
			}
			x.proc.Kill(t)
			for _, id := range ids[:signals] {
				require.Empty(t, here.wait(t, id).Err)
			}
			condWaits(t, condAt(t, a, "c"), 1)
			here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
			require.Empty(t, here.wait(t, ids[signals]).Err)
			owner.proc.Kill(t)
			alone(t, a, 1)
			sound(t, a)
		})
	}
}

// TestCondDeathThatNobodyCounts: a signalled waiter dies while all processes that watch its process are stopped. The
// process of the next waiter, which does not watch the dead process, finds the death.
func TestCondDeathThatNobodyCounts(t *testing.T) {
	a := newArena(t, nil)
	var watchers []*hand
	for n := range 3 {
		watchers = append(watchers, remoteHand(t, a, fmt.Sprint("watcher ", n)))
	}
	x, z := remoteHand(t, a, "x"), remoteHand(t, a, "z")
	x.blocked(t, task{Op: "cwait", Name: "c"})
	id := z.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	watchers[0].must(t, task{Op: "clock", Name: "c"})
	watchers[1].must(t, task{Op: "csignal", Name: "c"})
	for _, w := range watchers {
		w.proc.Stop(t)
	}
	x.proc.Kill(t)
	require.Empty(t, z.wait(t, id).Err)
	for _, w := range watchers {
		w.proc.Cont(t)
	}
	watchers[0].must(t, task{Op: "cunlock", Name: "c"})
	require.Equal(t, prims.CondState{}, condAt(t, a, "c").State())
	for _, w := range append(watchers, z) {
		w.proc.Kill(t)
	}
	alone(t, a, 1)
	sound(t, a)
}

// TestCondLeaverPassesItsSignalOn: a signalled waiter waits for the lock of the Cond while its process
// leaves the arena. The Signal passes on, and the waiter gets an error.
func TestCondLeaverPassesItsSignalOn(t *testing.T) {
	for _, broadcast := range []bool{false, true} {
		t.Run(fmt.Sprint("broadcast ", broadcast), func(t *testing.T) {
			world := arenatest.New(t, nil)
			a, b := world.Join("stays"), world.Join("leaves")
			l := new(sync.Mutex)
			c, err := prims.OpenCond(b, "c", l, &prims.CondOptions{Batch: 1})
			require.NoError(t, err)
			here, result := condAt(t, a, "c"), make(chan error)
			wait := func(c *prims.Cond, result chan error) {
				c.L.Lock()
				defer c.L.Unlock()
				result <- c.WaitContext(t.Context())
			}
			go wait(c, result)
			condWaits(t, here, 1)
			next := make(chan error)
			go wait(here, next)
			condWaits(t, here, 2)
			l.Lock()
			if broadcast {
				here.Broadcast()
			} else {
				here.Signal()
			}
			eventually(t, "it was woken", here.String, func() bool { return here.State().Woken >= 1 && c.State().Woken >= 1 })
			require.NoError(t, b.Close())
			require.NoError(t, <-next)
			l.Unlock()
			require.ErrorIs(t, <-result, shmsync.ErrClosed)
			require.Zero(t, here.Flying())
			require.Equal(t, prims.CondState{}, here.State())
			require.NoError(t, a.Check())
		})
	}
}

// TestCondBatchHolds: the waiters of a Broadcast come back one by one, and each keeps the lock for some time.
// At each moment, at most one batch of them has been woken and does not have the lock yet.
func TestCondBatchHolds(t *testing.T) {
	const waiters, batch = 24, 2
	a := newArena(t, nil)
	l := new(sync.Mutex)
	c, err := prims.OpenCond(a, "c", l, &prims.CondOptions{Batch: batch})
	require.NoError(t, err)
	var wg sync.WaitGroup
	most := uint32(0)
	for range waiters {
		wg.Go(func() {
			l.Lock()
			defer l.Unlock()
			c.Wait()
			for range 4 {
				<-after(5 * time.Millisecond)
				most = max(most, c.Flying())
			}
		})
	}
	condWaits(t, c, waiters)
	c.Broadcast()
	wg.Wait()
	require.LessOrEqual(t, most, uint32(batch))
	require.Zero(t, c.Flying())
	require.NoError(t, c.Close())
	sound(t, a)
}

// TestCondCoveredWaitGivesUp: a Broadcast covers a wait, and the context of the wait ends before the waiter is woken.
// WaitContext returns nil.
func TestCondCoveredWaitGivesUp(t *testing.T) {
	a := newArena(t, nil)
	owner, x := remoteHand(t, a, "owner"), remoteHand(t, a, "x")
	var ids []int
	for range 20 { // more than a batch
		ids = append(ids, x.blocked(t, task{Op: "cwaitctx", Name: "c"}))
	}
	x.proc.Stop(t) // so that no woken waiter wakes the next ones
	owner.must(t, task{Op: "clock", Name: "c"})
	owner.must(t, task{Op: "cbroadcast", Name: "c"})
	c := condAt(t, a, "c")
	require.EqualValues(t, 16, c.Flying())
	require.Equal(t, prims.CondState{Woken: 20}, c.State())
	x.start(task{Op: "cancel", N: ids[len(ids)-1]})
	x.proc.Cont(t)
	eventually(t, "the last wait has given up", c.String, func() bool { return c.State().Woken == 19 })
	owner.must(t, task{Op: "cunlock", Name: "c"})
	for _, id := range ids {
		require.Empty(t, x.wait(t, id).Err)
	}
	x.proc.Kill(t)
	owner.proc.Kill(t)
	alone(t, a, 1)
	sound(t, a)
}

// TestCondLeaverLeavesNoNode: a woken waiter waits for the lock of the Cond while its process leaves the arena.
// No other process has opened the Cond. The wait node is free afterwards.
func TestCondLeaverLeavesNoNode(t *testing.T) {
	world := arenatest.New(t, nil)
	a, b := world.Join("stays"), world.Join("leaves")
	l := new(sync.Mutex)
	c, err := prims.OpenCond(b, "c", l, nil)
	require.NoError(t, err)
	result := make(chan error)
	go func() {
		l.Lock()
		err := c.WaitContext(t.Context())
		l.Unlock()
		result <- err
	}()
	condWaits(t, c, 1)
	l.Lock()
	c.Signal()
	require.Equal(t, prims.CondState{Woken: 1}, c.State())
	require.NoError(t, b.Close())
	l.Unlock()
	require.ErrorIs(t, <-result, shmsync.ErrClosed)
	require.Zero(t, ownNodes(a))
	require.NoError(t, a.Check())
}

// TestCondDamagedQueueConcernsWaitsInTheQueue: a peer overwrites the queue after a Broadcast has woken some waiters. Their
// waits are over, so they return without an error.
func TestCondDamagedQueueConcernsWaitsInTheQueue(t *testing.T) {
	const waiters, batch = 20, 16
	a := newArena(t, nil)
	l := new(sync.Mutex)
	c, err := prims.OpenCond(a, "c", l, nil)
	require.NoError(t, err)
	results := make(chan error, waiters)
	ctx, cancel := context.WithCancel(t.Context())
	for range waiters {
		go func() {
			l.Lock()
			defer l.Unlock()
			results <- c.WaitContext(ctx)
		}()
	}
	condWaits(t, c, waiters)
	l.Lock()
	c.Broadcast()
	require.EqualValues(t, batch, c.Flying())
	c.OverwriteFirst(1 << 20)
	l.Unlock()
	for range batch {
		require.NoError(t, <-results)
	}
	require.Zero(t, c.Flying())
	cancel()
	for range waiters - batch {
		<-results
	}
}

// TestCondDamagedLinkKeepsTheQueue: a peer overwrites the link of the first wait that a Broadcast has covered, but not
// woken. Waiters that want to wake the next ones find the damage. If they took the damaged wait off the queue, the
// queue would look as if it were empty.
func TestCondDamagedLinkKeepsTheQueue(t *testing.T) {
	const waiters, batch = 20, 16
	a := newArena(t, nil)
	l := new(sync.Mutex)
	c, err := prims.OpenCond(a, "c", l, nil)
	require.NoError(t, err)
	results := make(chan error, waiters)
	for range waiters {
		go func() {
			l.Lock()
			defer l.Unlock()
			results <- c.WaitContext(t.Context())
		}()
	}
	condWaits(t, c, waiters)
	l.Lock()
	c.Broadcast()
	require.EqualValues(t, batch, c.Flying())
	first := c.First()
	next := first.Next().Load()
	first.Next().Store(uint64(arenakernel.RecordedLast)<<32 | next&(1<<32-1))
	l.Unlock()
	for range batch {
		require.NoError(t, <-results)
	}
	require.Same(t, first, c.First())
	first.Next().Store(next)
	c.Broadcast()
	for range waiters - batch {
		<-results
	}
	require.NoError(t, a.Check())
}

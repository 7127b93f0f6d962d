//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// These tests have the names of the tests that ClickHouse's silk has for its FiberCondVar. They run
// in one process and between processes.

func newCond(t testing.TB, a *arena.Arena, l sync.Locker) *prims.Cond {
	t.Helper()
	c, err := prims.OpenCond(a, "", l, nil)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// condWaits waits until n goroutines wait for c, and no woken goroutine still has to lock the lock.
func condWaits(t testing.TB, c *prims.Cond, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait", n), c.String, func() bool { return c.State() == prims.CondState{Waiting: n} })
}

// stays checks that a task does not end although each process that could end it has had time to do
// so.
func stays(t testing.TB, x *hand, id int) {
	t.Helper()
	if x.proc != nil {
		x.must(t, task{Op: "isset", Name: "any other"})
	} else {
		runtime.Gosched()
	}
	select {
	case a := <-x.inbox:
		x.said[a.ID] = a
	default:
	}
	_, done := x.said[id]
	require.False(t, done, "%v", x.said[id])
}

func TestCondNotifyOneWakesWaiter(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		for _, op := range []string{"cwait", "cwaitctx"} {
			id := x.blocked(t, task{Op: op, Name: "c"})
			y.must(t, task{Op: "csignal", Name: "c"})
			require.Empty(t, x.wait(t, id).Err)
		}
		require.Zero(t, waitersOf(a, "c"))
	})
}

// TestCondNotifyAllWakesAll is notifyAllWakesAll of silk: a Broadcast wakes 33 waiters in each process. That is one
// more than the batch of the original, and more than the number of threads that may sleep.
func TestCondNotifyAllWakesAll(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		for _, each := range []int{33, 5, 1} {
			var xs, ys []int
			for range each {
				xs = append(xs, x.blocked(t, task{Op: "cwait", Name: "c"}))
				ys = append(ys, y.blocked(t, task{Op: "cwaitctx", Name: "c"}))
			}
			y.must(t, task{Op: "cbroadcast", Name: "c"})
			seen := map[uint64]bool{}
			for i := range each {
				for _, r := range []answer{x.wait(t, xs[i]), y.wait(t, ys[i])} {
					require.Empty(t, r.Err+r.Panic)
					require.False(t, seen[r.N], "two had the lock at once")
					seen[r.N] = true
				}
			}
		}
	})
}

// TestCondNotifyOneWakesOneAtATime is notifyOneWakesOneAtATime of silk: each signal wakes one waiter, in the order in
// which the waiters began to wait.
func TestCondNotifyOneWakesOneAtATime(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		const each = 10
		type at struct {
			x  *hand
			id int
		}
		var order []at
		for range each {
			order = append(order, at{x, x.blocked(t, task{Op: "cwait", Name: "c"})}, at{y, y.blocked(t, task{Op: "cwait", Name: "c"})})
		}
		for i, w := range order {
			y.must(t, task{Op: "csignal", Name: "c"})
			r := w.x.wait(t, w.id)
			require.Empty(t, r.Err)
			require.EqualValues(t, i+1, r.N)
			require.Equal(t, len(order)-i-1, waitersOf(a, "c"))
		}
		// Do the same with several signals before any waiter runs.
		order = nil
		for range each {
			order = append(order, at{x, x.blocked(t, task{Op: "cwait", Name: "c"})}, at{y, y.blocked(t, task{Op: "cwait", Name: "c"})})
		}
		x.must(t, task{Op: "csignal", Name: "c", N: each})
		for _, w := range order[:each] {
			require.Empty(t, w.x.wait(t, w.id).Err)
		}
		require.Equal(t, each, waitersOf(a, "c"))
		x.must(t, task{Op: "csignal", Name: "c", N: each + 5})
		for _, w := range order[each:] {
			require.Empty(t, w.x.wait(t, w.id).Err)
		}
	})
}

func TestCondWaitReacquiresMutex(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		id := x.start(task{Op: "cwaitkeep", Name: "c"})
		eventually(t, "it waits", func() string { return words(a) }, func() bool { return waitersOf(a, "c") == 1 })
		// The lock is free while x waits.
		y.must(t, task{Op: "clock", Name: "c"})
		y.must(t, task{Op: "csignal", Name: "c"})
		stays(t, x, id) // y holds the lock
		y.must(t, task{Op: "cunlock", Name: "c"})
		require.Empty(t, x.wait(t, id).Err)
		m, err := prims.OpenMutex(a, "lock of c", nil)
		require.NoError(t, err)
		require.True(t, m.State().Held)
		require.False(t, m.TryLock())
		x.must(t, task{Op: "cunlock", Name: "c"})
	})
}

// TestCondNotifyNobody is notifyOneNoWaiterNoCrash and notifyAllNoWaiterNoCrash of silk: a Signal or a Broadcast that
// finds no waiter has no effect on a later waiter.
func TestCondNotifyNobody(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		x.must(t, task{Op: "csignal", Name: "c", N: 3})
		x.must(t, task{Op: "cbroadcast", Name: "c"})
		r := y.do(t, task{Op: "cwaitctx", Name: "c", Limit: 20 * time.Millisecond})
		require.Equal(t, []string{"ctx-deadline"}, r.Is)
		require.GreaterOrEqual(t, r.Took, 20*time.Millisecond)
	})
}

// TestCondAnyLock is syncWaitWithStdUniqueLock of silk: a Cond accepts any lock, and each process may use a different
// lock.
func TestCondAnyLock(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		var ids []int
		for range 5 {
			ids = append(ids, x.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"}))
		}
		mine := y.blocked(t, task{Op: "cwait", Name: "c", Lock: "another"})
		y.must(t, task{Op: "csignal", Name: "c", Lock: "another"})
		require.Empty(t, x.wait(t, ids[0]).Err)
		x.must(t, task{Op: "cbroadcast", Name: "c", Lock: "local"})
		for _, id := range ids[1:] {
			require.Empty(t, x.wait(t, id).Err)
		}
		require.Empty(t, y.wait(t, mine).Err)
	})
	// Readers that wait together can hold the lock together again after a Broadcast.
	var rw sync.RWMutex
	a := newArena(t, nil)
	c, err := prims.OpenCond(a, "", rw.RLocker(), &prims.CondOptions{Batch: -1})
	require.NoError(t, err)
	var wg sync.WaitGroup
	var inside atomic.Int32
	all := make(chan struct{})
	for range 20 {
		wg.Go(func() {
			c.L.Lock()
			c.Wait()
			if inside.Add(1) == 20 {
				close(all)
			}
			<-all
			c.L.Unlock()
		})
	}
	condWaits(t, c, 20)
	c.Broadcast()
	wg.Wait()
}

func TestCondWaitForTimesOut(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		r := x.do(t, task{Op: "cwaitctx", Name: "c", Limit: 20 * time.Millisecond})
		require.Equal(t, []string{"ctx-deadline"}, r.Is)
		require.GreaterOrEqual(t, r.Took, 20*time.Millisecond)
		require.Equal(t, []string{"ctx-canceled"}, x.do(t, task{Op: "cwaitctx", Name: "c", Ended: true}).Is)
		// Only the canceled wait ends, whether its goroutine sleeps in the kernel or is parked.
		var ids []int
		for range 20 {
			ids = append(ids, x.blocked(t, task{Op: "cwaitctx", Name: "c"}))
		}
		for i, id := range ids {
			x.must(t, task{Op: "cancel", N: id})
			require.Equal(t, []string{"ctx-canceled"}, x.wait(t, id).Is)
			eventually(t, "the others wait", func() string { return words(a) }, func() bool { return waitersOf(a, "c") == len(ids)-i-1 })
		}
	})
}

func TestCondWaitForNotifyBeforeTimeout(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		// First the signal comes, then the deadline of the waiter passes, and then the lock becomes free. The wait
		// succeeds, because the signal takes precedence over the deadline. The same holds for a broadcast.
		for _, op := range []string{"csignal", "cbroadcast"} {
			var ids []int
			for range 40 { // more than a broadcast wakes at a time
				ids = append(ids, x.blocked(t, task{Op: "cwaitctx", Name: "c"}))
			}
			y.must(t, task{Op: "clock", Name: "c"})
			y.must(t, task{Op: op, Name: "c", N: len(ids)})
			for _, id := range ids {
				x.must(t, task{Op: "cancel", N: id})
			}
			for _, id := range ids {
				stays(t, x, id)
			}
			y.must(t, task{Op: "cunlock", Name: "c"})
			for _, id := range ids {
				require.Empty(t, x.wait(t, id).Err, op)
			}
		}
	})
}

func TestCondPredicateLoop(t *testing.T) {
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	c := newCond(t, a, m)
	const items = 3000
	queue, taken := 0, 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			m.Lock()
			defer m.Unlock()
			for taken < items {
				for queue == 0 && taken < items {
					c.Wait()
				}
				if queue > 0 {
					queue--
					if taken++; taken == items {
						c.Broadcast()
					}
				}
			}
		})
	}
	for range items {
		m.Lock()
		queue++
		m.Unlock()
		c.Signal()
	}
	wg.Wait()
	require.Equal(t, items, taken)
}

// TestCondBroadcastGeneration: a Broadcast wakes the goroutines that wait at that moment. It does
// not wake a goroutine that has come back and waits again, or a goroutine that begins to wait
// later.
func TestCondBroadcastGeneration(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		var first []int
		c := condAt(t, a, "c")
		for range 40 {
			first = append(first, x.blocked(t, task{Op: "cwait", Name: "c"}))
		}
		y.must(t, task{Op: "clock", Name: "c"})
		y.must(t, task{Op: "cbroadcast", Name: "c"})
		// These waits begin after the Broadcast, while most of its waiters are not woken yet.
		later := make([]int, 3)
		for i := range later {
			later[i] = y.start(task{Op: "cwaitlater", Name: "c"})
			eventually(t, "it waits", func() string { return words(a) }, func() bool { return c.State().Waiting == i+1 })
		}
		// The signal goes to the first of the later waits, because the waits before it are covered by the Broadcast
		// already.
		y.must(t, task{Op: "csignal", Name: "c"})
		y.must(t, task{Op: "cunlock", Name: "c"})
		for _, id := range first {
			require.Empty(t, x.wait(t, id).Err)
		}
		require.Empty(t, y.wait(t, later[0]).Err)
		eventually(t, "two wait", func() string { return words(a) }, func() bool {
			return c.State() == prims.CondState{Waiting: 2}
		})
		y.must(t, task{Op: "cbroadcast", Name: "c"})
		for _, id := range later[1:] {
			require.Empty(t, y.wait(t, id).Err)
		}
	})
}

// condAt opens the named Cond in this process.
func condAt(t testing.TB, a *arena.Arena, name string) *prims.Cond {
	c, err := prims.OpenCond(a, name, new(sync.Mutex), nil)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestCondBroadcastBehindHolder: some waiters of a Broadcast cannot get their own lock for a long time. They do not
// delay waiters whose own lock is free.
func TestCondBroadcastBehindHolder(t *testing.T) {
	a := newArena(t, nil)
	x := remoteHand(t, a, "x")
	var ids []int
	for range 40 {
		ids = append(ids, x.blocked(t, task{Op: "cwait", Name: "c"}))
	}
	here := localHand(a)
	mine := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	m, err := prims.OpenMutex(a, "lock of c", nil)
	require.NoError(t, err)
	m.Lock()
	here.must(t, task{Op: "cbroadcast", Name: "c", Lock: "local"})
	require.Empty(t, here.wait(t, mine).Err)
	m.Unlock()
	for _, id := range ids {
		require.Empty(t, x.wait(t, id).Err)
	}
	// The same holds if a waiter is stopped before it has locked its lock.
	ids = ids[:0]
	for range 40 {
		ids = append(ids, x.blocked(t, task{Op: "cwait", Name: "c"}))
	}
	mine = here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	x.proc.Stop(t)
	here.must(t, task{Op: "cbroadcast", Name: "c", Lock: "local"})
	require.Empty(t, here.wait(t, mine).Err)
	x.proc.Cont(t)
	for _, id := range ids {
		require.Empty(t, x.wait(t, id).Err)
	}
}

func TestCondMistakes(t *testing.T) {
	a := newArena(t, nil)
	require.PanicsWithValue(t, `shmsync: OpenCond "c" without a lock`, func() { prims.OpenCond(a, "c", nil, nil) })
	require.PanicsWithValue(t, "shmsync: CondAt 0x40 without a lock", func() { prims.CondAt(a, 0x40, nil) })
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	c, err := prims.OpenCond(a, "c", m, nil)
	require.NoError(t, err)
	for range 3 {
		require.PanicsWithValue(t, "shmsync: Unlock of mutex m, which this process does not hold: it is free", func() { c.Wait() })
		require.Zero(t, c.State()) // the actor no longer waits
	}
	require.Equal(t, "cond c: 0 waiting, 0 woken", c.String())
}

// TestCondPanicOfARepair: the Repair of the lock panics while a wait locks the lock again. The panic continues, even if
// its value is an error of another Cond. If WaitContext returned this error, its caller would think that it holds the
// lock.
func TestCondPanicOfARepair(t *testing.T) {
	w := arenatest.New(t, nil)
	victim, a := w.JoinVictim("victim"), w.Join("mine")
	other, err := prims.OpenCond(a, "other", new(sync.Mutex), nil)
	require.NoError(t, err)
	theirs, err := prims.OpenMutex(victim, "m", nil)
	require.NoError(t, err)
	m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Repair: func() error {
		other.Close()
		other.L.Lock()
		other.Wait() // panics
		return nil
	}})
	require.NoError(t, err)
	c, err := prims.OpenCond(a, "c", m, nil)
	require.NoError(t, err)
	its, err := prims.OpenCond(victim, "c", theirs, nil)
	require.NoError(t, err)
	m.Lock()
	go func() { // gets the lock when WaitContext has unlocked it
		theirs.Lock()
		its.Signal()
		w.Kill(victim)
	}()
	panicked := func() (v any) {
		defer func() { v = recover() }()
		return fmt.Sprint("no panic, but the error: ", c.WaitContext(context.Background()))
	}()
	require.IsType(t, (*shmsync.Error)(nil), panicked)
	require.ErrorIs(t, panicked.(error), shmsync.ErrClosed)
	require.Panics(t, m.Unlock, "the lock is not held")
}

func TestCondOpen(t *testing.T) {
	a := newArena(t, nil)
	m, n := newMutex(t, a, nil), new(sync.Mutex)
	c, err := prims.OpenCond(a, "c", m, &prims.CondOptions{Batch: 7, Spin: -1})
	require.NoError(t, err)
	d, err := prims.OpenCond(a, "c", n, nil)
	require.NoError(t, err)
	require.NotSame(t, c.Core(), d.Core())
	require.Same(t, m, c.L)
	require.Same(t, n, d.L)
	_, err = prims.OpenCond(a, "c", m, &prims.CondOptions{Batch: -1})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "its batch is 7, asked for -1")
	e, err := prims.CondAt(a, c.Offset(), m)
	require.NoError(t, err)
	require.Equal(t, c.Offset(), e.Offset())
	_, err = prims.CondAt(a, m.Offset(), m)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.CondAt(a, 12345, m)
	require.Error(t, err)
	for _, x := range []*prims.Cond{d, e, c} {
		require.ErrorContains(t, a.Delete("c"), "open")
		require.NoError(t, x.Close())
	}
	require.ErrorIs(t, c.Close(), shmsync.ErrClosed)
	_, err = prims.OpenMutex(a, "c", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.NoError(t, a.Delete("c"))
}

// TestCondArenaClose: Close of the arena ends the waits of a Cond. If the lock can be locked, the
// waits return with the lock held.
func TestCondArenaClose(t *testing.T) {
	a := newArena(t, nil)
	x := remoteHand(t, a, "closer")
	var ids []int
	for i := range 20 {
		o := task{Op: "cwaitctx", Name: "c", Lock: "local"}
		if i%2 == 0 {
			o = task{Op: "cwaitkeep", Name: "d"}
		}
		ids = append(ids, x.blocked(t, o))
	}
	here := localHand(a)
	mine := here.blocked(t, task{Op: "cwait", Name: "c"})
	x.must(t, task{Op: "close-arena"})
	for _, id := range ids {
		require.Equal(t, []string{"closed"}, x.wait(t, id).Is)
	}
	require.Equal(t, 1, waitersOf(a, "c"))
	here.must(t, task{Op: "csignal", Name: "c"})
	require.Empty(t, here.wait(t, mine).Err)
	alone(t, a, 1)
	sound(t, a)
}

// requireCondHoldsLock requires that err is an error of the Cond, not of its lock: the caller holds the lock.
func requireCondHoldsLock(t *testing.T, err error) {
	t.Helper()
	var known *shmsync.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, "cond.wait", known.Op)
	require.NotEmpty(t, known.Object)
}

// TestCondDamaged: a wait for a Cond that a peer has overwritten does not begin. The lock stays held, and the error says
// so.
func TestCondDamaged(t *testing.T) {
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	c := newCond(t, a, m)
	clean := prims.BodyOf(a, c.Object())
	damaged := slices.Clone(clean)
	for i := range damaged {
		damaged[i] = math.MaxUint64
	}
	m.Lock()
	prims.Restore(a, c.Object(), damaged)
	err := c.WaitContext(t.Context())
	prims.Restore(a, c.Object(), clean)
	require.ErrorIs(t, err, shmsync.ErrCorrupt)
	requireCondHoldsLock(t, err)
	require.True(t, m.HeldByUs())
	m.Unlock()
}

// TestCondNoSpace: in a full arena, a wait that finds no node does not begin. The lock stays held,
// and no other waiter misses its wake.
func TestCondNoSpace(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20})
	m := newMutex(t, a, nil)
	c := newCond(t, a, m)
	first := make(chan struct{})
	go func() {
		m.Lock()
		c.Wait()
		m.Unlock()
		close(first)
	}()
	condWaits(t, c, 1)
	for size := uint64(64 << 10); size >= 64; size /= 2 {
		for {
			if _, err := a.Alloc(size, 64); err != nil {
				break
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	const most = 5000 // a chunk has fewer than this many nodes
	full := make(chan error, most)
	for range most {
		wg.Go(func() {
			m.Lock()
			defer m.Unlock() // panics if it is not held
			err := c.WaitContext(ctx)
			full <- err
		})
		if len(full) > 0 {
			break
		}
		runtime.Gosched()
	}
	var err error
	select {
	case err = <-full:
	case <-after(timeout()):
		t.Fatal("there is room for all")
	}
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.ErrorIs(t, err, syscall.ENOSPC)
	c.Signal()
	<-first
	cancel()
	wg.Wait()
	require.Zero(t, c.State())
	requireCondHoldsLock(t, err)
}

// TestCondAllocations: a wait that blocks and has no context allocates nothing.
func TestCondAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, which allocates")
	}
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	c := newCond(t, a, m)
	turn := 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Lock()
		defer m.Unlock()
		for turn >= 0 {
			for turn == 0 {
				c.Wait()
			}
			if turn > 0 {
				turn = 0
				c.Signal()
			}
		}
	}()
	n := testing.AllocsPerRun(2000, func() {
		m.Lock()
		turn = 1
		c.Signal()
		for turn == 1 {
			c.Wait()
		}
		m.Unlock()
	})
	m.Lock()
	turn = -1
	c.Signal()
	m.Unlock()
	<-ended
	require.Zero(t, n)
}

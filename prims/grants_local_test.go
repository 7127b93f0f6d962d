//go:build linux

package prims_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// localKinds are objects with which one goroutine waits until another goroutine of the same process
// gives it something. Each function returns the object, the wait, and the call that ends the wait.
var localKinds = map[string]func(a *arena.Arena) (o offsetter, wait func() error, give func(), err error){
	"fair mutex": func(a *arena.Arena) (offsetter, func() error, func(), error) {
		f, err := prims.OpenFairMutex(a, "x", nil)
		if err == nil {
			f.Lock()
		}
		return f, func() error { f.Lock(); f.Unlock(); return nil }, f.Unlock, err
	},
	"multi lock": func(a *arena.Arena) (offsetter, func() error, func(), error) {
		x, err := prims.OpenMultiLock(a, "x", nil)
		var h prims.Hold
		if err == nil {
			h = x.Lock(7)
		}
		return x, func() error { x.Lock(7).Unlock(); return nil }, h.Unlock, err
	},
	"semaphore": func(a *arena.Arena) (offsetter, func() error, func(), error) {
		s, err := prims.OpenSemaphore(a, "x", 1, nil)
		if err == nil && !s.TryAcquire(1) {
			err = errors.New("no permit")
		}
		return s, func() error { return s.AcquireContext(context.Background(), 1) }, func() { s.Release(1) }, err
	},
	"event": func(a *arena.Arena) (offsetter, func() error, func(), error) {
		e, err := prims.OpenEvent(a, "x", nil)
		return e, func() error { e.Wait(); return nil }, e.Set, err
	},
	"latch": func(a *arena.Arena) (offsetter, func() error, func(), error) {
		l, err := prims.OpenLatch(a, "x", 1, nil)
		return l, func() error { l.Wait(); return nil }, func() { l.CountDown(1) }, err
	},
	"sequencer": func(a *arena.Arena) (offsetter, func() error, func(), error) {
		s, err := prims.OpenSequencer(a, "x", nil)
		return s, func() error { return s.Wait(1) }, func() { s.Increment() }, err
	},
	"queue": func(a *arena.Arena) (offsetter, func() error, func(), error) {
		q, err := prims.OpenQueue[int](a, "x", 1, nil)
		return q, func() error { _, err := q.Get(); return err }, func() { q.Put(1) }, err
	},
}

type offsetter interface{ Offset() arena.Offset }

// TestGrantToTheOwnProcessRingsNoDoorbell: a goroutine wakes a parked goroutine of the same process without the
// doorbell of the process. So the wake does not depend on the poller, which may run late in a busy process.
func TestGrantToTheOwnProcessRingsNoDoorbell(t *testing.T) {
	for name, open := range localKinds {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			fillThreads(t, a)
			o, wait, give, err := open(a)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- wait() }()
			parks(t, a, o.Offset(), 1)
			_, rung := (*arenakernel.Arena)(a).Doorbell()
			give()
			require.NoError(t, <-ended)
			_, rungNow := (*arenakernel.Arena)(a).Doorbell()
			require.Equal(t, rung, rungNow, "the poller was woken")
		})
	}
}

// parks returns when n goroutines, of all processes, are parked while they wait for an object.
func parks(t *testing.T, a *arena.Arena, o arena.Offset, n int) {
	t.Helper()
	eventually(t, "goroutines park", func() string { return words(a) }, func() bool { return prims.ParkedNodes(a, o) == n })
}

// TestFairMutexPassesThroughProcessesInOrder has waits of two processes in the queue. They get the lock in the order
// of arrival. When the lock comes to this process from the other process, the doorbell rings. When the lock goes from
// one goroutine of this process to the next, the doorbell does not ring.
func TestFairMutexPassesThroughProcessesInOrder(t *testing.T) {
	a := newArena(t, nil)
	fillThreads(t, a)
	f, err := prims.OpenFairMutex(a, "f", nil)
	require.NoError(t, err)
	f.Lock()
	x := lockActor(t, a, "other")
	got := make(chan int, 7)
	var theirs []int
	var wg sync.WaitGroup
	here := func(i int) {
		n := f.Queued()
		wg.Go(func() {
			f.Lock()
			got <- i
			f.Unlock()
		})
		eventually(t, "it waits in the queue", f.String, func() bool { return f.Queued() == n+1 })
	}
	there := func(i int) {
		n := f.Queued()
		theirs = append(theirs, x.start(orderFor("flock", "f")))
		eventually(t, "it waits in the queue", f.String, func() bool { return f.Queued() == n+1 })
	}
	here(0)
	here(1)
	there(2)
	here(3)
	here(4)
	there(5)
	here(6)
	parks(t, a, f.Offset(), 1) // the first waiter of this process
	_, rung := (*arenakernel.Arena)(a).Doorbell()
	f.Unlock()
	for i, before := range []int{2, 4} {
		require.Empty(t, x.wait(t, theirs[i]).Panic)
		require.Len(t, got, before, "the other process has the lock")
		parks(t, a, f.Offset(), 1) // the next waiter of this process, which now has the turn
		x.must(t, orderFor("funlock", "f"))
	}
	wg.Wait()
	_, rungNow := (*arenakernel.Arena)(a).Doorbell()
	for _, i := range []int{0, 1, 3, 4, 6} {
		require.Equal(t, i, <-got)
	}
	require.EqualValues(t, 2, rungNow-rung, "hand-offs through the poller")
}

func orderFor(op, object string) order { return order{Op: op, Object: object} }

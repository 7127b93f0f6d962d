//go:build linux

package prims_test

import (
	"context"
	"io/fs"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// openers has the two ways to open an object of each kind.
var openers = map[string]struct {
	open, attach func(a *arena.Arena, name string) error
}{}

func init() {
	rules := prims.Rules[int, int]{Claim: func(s *int, e int) bool { return true }}
	var mu sync.Mutex
	add := func(kind string, open, attach func(a *arena.Arena, name string) error) {
		openers[kind] = struct {
			open, attach func(a *arena.Arena, name string) error
		}{open, attach}
	}
	add("mutex", func(a *arena.Arena, n string) error { return second(prims.OpenMutex(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachMutex(a, n, nil)) })
	add("cohort mutex", func(a *arena.Arena, n string) error { return second(prims.OpenCohortMutex(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachCohortMutex(a, n, nil)) })
	add("cond", func(a *arena.Arena, n string) error { return second(prims.OpenCond(a, n, &mu, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachCond(a, n, &mu, nil)) })
	add("event", func(a *arena.Arena, n string) error {
		return second(prims.OpenEvent(a, n, &prims.EventOptions{Mode: prims.EventAutoReset}))
	}, func(a *arena.Arena, n string) error { return second(prims.AttachEvent(a, n, nil)) })
	add("fair mutex", func(a *arena.Arena, n string) error { return second(prims.OpenFairMutex(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachFairMutex(a, n, nil)) })
	add("futex", func(a *arena.Arena, n string) error { return second(prims.OpenFutex(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachFutex(a, n, nil)) })
	add("future", func(a *arena.Arena, n string) error { return second(prims.OpenFuture(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachFuture(a, n, nil)) })
	add("multilock", func(a *arena.Arena, n string) error {
		return second(prims.OpenMultiLock(a, n, &prims.MultiLockOptions{Buckets: 2}))
	}, func(a *arena.Arena, n string) error { return second(prims.AttachMultiLock(a, n, nil)) })
	add("once", func(a *arena.Arena, n string) error { return second(prims.OpenOnce(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachOnce(a, n, nil)) })
	add("rwmutex", func(a *arena.Arena, n string) error { return second(prims.OpenRWMutex(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachRWMutex(a, n, nil)) })
	add("rwspinlock", func(a *arena.Arena, n string) error { return second(prims.OpenRWSpinLock(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachRWSpinLock(a, n, nil)) })
	add("sequencer", func(a *arena.Arena, n string) error { return second(prims.OpenSequencer(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachSequencer(a, n, nil)) })
	add("spinlock", func(a *arena.Arena, n string) error { return second(prims.OpenSpinLock(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachSpinLock(a, n, nil)) })
	add("signal waker", func(a *arena.Arena, n string) error {
		return second(prims.OpenSignalWaker(a, n, &prims.SignalWakerOptions{Signals: 2}))
	}, func(a *arena.Arena, n string) error { return second(prims.AttachSignalWaker(a, n, nil)) })
	add("waitgroup", func(a *arena.Arena, n string) error { return second(prims.OpenWaitGroup(a, n, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachWaitGroup(a, n, nil)) })
	add("waitable", func(a *arena.Arena, n string) error { return second(prims.OpenWaitable(a, n, 3, rules, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachWaitable(a, n, rules, nil)) })
	add("latch", func(a *arena.Arena, n string) error { return second(prims.OpenLatch(a, n, 3, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachLatch(a, n, nil)) })
	add("barrier", func(a *arena.Arena, n string) error { return second(prims.OpenBarrier(a, n, 3, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachBarrier(a, n, nil)) })
	add("semaphore", func(a *arena.Arena, n string) error { return second(prims.OpenSemaphore(a, n, 3, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachSemaphore(a, n, nil)) })
	add("queue", func(a *arena.Arena, n string) error { return second(prims.OpenQueue[int](a, n, 3, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachQueue[int](a, n, nil)) })
	add("synchronized", func(a *arena.Arena, n string) error { return second(prims.OpenSynchronized(a, n, 7, nil)) },
		func(a *arena.Arena, n string) error { return second(prims.AttachSynchronized[int](a, n, nil)) })
	add("value", func(a *arena.Arena, n string) error { return second(arena.Value[int](a, n)) },
		func(a *arena.Arena, n string) error { return second(arena.AttachValue[int](a, n)) })
	add("block", func(a *arena.Arena, n string) error { return second(a.Block(n, 3)) },
		func(a *arena.Arena, n string) error { return second(a.AttachBlock(n)) })

	proctest.Register("attach", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		for kind, o := range openers {
			if err := o.open(a, kind); err != nil {
				c.Fatal(kind, err)
			}
		}
		c.Ready()
		c.Recv(new(int))
	})
}

func second[T any](_ T, err error) error { return err }

func countObjects(a *arena.Arena) (n int) {
	for range a.Objects() {
		n++
	}
	return n
}

// TestAttachOnlyFinds checks that AttachX opens an object that another process has created, with any options, and
// that AttachX never creates an object.
func TestAttachOnlyFinds(t *testing.T) {
	a := newArena(t, nil)
	before := countObjects(a)
	for kind, o := range openers {
		require.ErrorIs(t, o.attach(a, kind), fs.ErrNotExist, kind)
		require.ErrorIs(t, o.attach(a, ""), fs.ErrInvalid, kind)
	}
	require.Equal(t, before, countObjects(a))
	proctest.Start(t, "attach", proctest.Params(nameOf(a))).Await(t)
	for kind, o := range openers {
		require.NoError(t, o.attach(a, kind), kind)
		other := "mutex"
		if kind == other {
			other = "once"
		}
		require.ErrorIs(t, o.attach(a, other), shmsync.ErrIncompatible, kind)
	}
	require.Equal(t, before+len(openers), countObjects(a))
}

// TestOpenRefusesZero checks that an OpenX with a number of 0 or -1 fails and creates no object, so that a later call
// with a valid number can create it.
func TestOpenRefusesZero(t *testing.T) {
	a := newArena(t, nil)
	before := countObjects(a)
	for _, n := range []int64{0, -1} {
		for kind, err := range map[string]error{
			"latch":     second(prims.OpenLatch(a, "latch", n, nil)),
			"barrier":   second(prims.OpenBarrier(a, "barrier", n, nil)),
			"semaphore": second(prims.OpenSemaphore(a, "semaphore", n, nil)),
			"queue":     second(prims.OpenQueue[int](a, "queue", int(n), nil)),
		} {
			require.ErrorIs(t, err, fs.ErrInvalid, kind)
			require.ErrorContains(t, err, "of at least 1", kind)
		}
	}
	require.ErrorIs(t, second(a.Block("block", 0)), fs.ErrInvalid)
	require.Equal(t, before, countObjects(a))

	// After the refused calls, another process creates the objects with the number 3, and this process finds them
	// with this number.
	proctest.Start(t, "attach", proctest.Params(nameOf(a))).Await(t)
	l, err := prims.AttachLatch(a, "latch", nil)
	require.NoError(t, err)
	require.False(t, l.TryWait())
	require.EqualValues(t, 3, l.State().Size)
	b, err := prims.AttachBarrier(a, "barrier", nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, b.State().Pending)
	s, err := prims.AttachSemaphore(a, "semaphore", nil)
	require.NoError(t, err)
	require.NoError(t, s.AcquireContext(context.Background(), 3))
	q, err := prims.AttachQueue[int](a, "queue", nil)
	require.NoError(t, err)
	require.Equal(t, 3, q.Cap())
	require.ErrorIs(t, second(prims.OpenLatch(a, "latch", 4, nil)), shmsync.ErrIncompatible)
}

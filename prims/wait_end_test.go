//go:build linux

package prims_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// beforeSleepContext is a context with a hook: the function in the field then. The hook runs when a wait is about to
// sleep in the kernel. At that time the wait has announced itself, and has found that it has to sleep.
type beforeSleepContext struct {
	context.Context
	then func()
}

// Value returns nil for every key. So context.AfterFunc does not find the embedded context, and calls the method
// AfterFunc.
func (c beforeSleepContext) Value(any) any { return nil }

// AfterFunc is called by context.AfterFunc. It runs the hook. If the hook has ended the context, AfterFunc calls the
// function ends, which ends the wait.
func (c beforeSleepContext) AfterFunc(ends func()) (stop func() bool) {
	c.then()
	if c.Err() != nil {
		go ends() // in another goroutine, because context.AfterFunc holds a lock that the function ends needs
	}
	return func() bool { return false }
}

// endingWait consists of a wait, the event for which it waits, and the Close of its handle.
type endingWait struct {
	wait     func(ctx context.Context) error
	event    func()
	silently func() // does what event does, and does not wake the waiter yet; nil if the wake is part of the event
	close    func() error
	closing  func() bool
}

var endingWaits = map[string]func(t *testing.T, a *arena.Arena) endingWait{
	"queue get": func(t *testing.T, a *arena.Arena) endingWait {
		q := newQueue[int64](t, a, "q", 1)
		return endingWait{func(ctx context.Context) error {
			v, err := q.GetContext(ctx)
			if err == nil {
				require.EqualValues(t, 7, v)
			}
			return err
		}, func() { require.NoError(t, q.Put(7)) }, func() { require.True(t, q.PutWithoutWake(7)) }, q.Close, q.Closing}
	},
	"queue lease": func(t *testing.T, a *arena.Arena) endingWait {
		q := newQueue[int64](t, a, "q", 1)
		return endingWait{func(ctx context.Context) error {
			l, err := q.LeaseContext(ctx)
			if err == nil {
				require.EqualValues(t, 7, l.Item)
			}
			return err
		}, func() { require.NoError(t, q.Put(7)) }, func() { require.True(t, q.PutWithoutWake(7)) }, q.Close, q.Closing}
	},
	"queue put": func(t *testing.T, a *arena.Arena) endingWait {
		q := newQueue[int64](t, a, "q", 1)
		require.NoError(t, q.Put(1))
		return endingWait{func(ctx context.Context) error { return q.PutContext(ctx, 2) }, func() {
			v, err := q.Get()
			require.NoError(t, err)
			require.EqualValues(t, 1, v)
		}, func() { require.True(t, q.DropWithoutWake()) }, q.Close, q.Closing}
	},
	"futex": func(t *testing.T, a *arena.Arena) endingWait {
		f, err := prims.OpenFutex(a, "f", nil)
		require.NoError(t, err)
		return endingWait{func(ctx context.Context) error { return f.WaitContext(ctx, 1) }, f.Post, nil, f.Close, f.Closing}
	},
}

// TestEventBeatsTheEndOfTheWait checks that a wait succeeds if its event happens before the wait ends. The event
// happens while the waiter is about to sleep. Then the context of the wait ends, or the handle is closed, before the
// waiter runs again.
func TestEventBeatsTheEndOfTheWait(t *testing.T) {
	if !shmsync.FeatureWaitV.Have() {
		t.Skip("needs futex_waitv: without it, a wait with a context does not sleep in the kernel")
	}
	for name, open := range endingWaits {
		if name != "futex" { // each Post of a Futex wakes, so its wait ends before the context does
			t.Run(name+"/context", func(t *testing.T) {
				w := open(t, newArena(t, nil))
				ctx, end := context.WithCancel(t.Context())
				defer end()
				require.NoError(t, w.wait(beforeSleepContext{ctx, func() { w.silently(); end() }}))
				require.Error(t, ctx.Err(), "the wait was about to sleep")
			})
		}
		t.Run(name+"/close", func(t *testing.T) {
			w := open(t, newArena(t, nil))
			ctx, end := context.WithCancel(t.Context())
			defer end()
			closed := make(chan error, 1)
			require.NoError(t, w.wait(beforeSleepContext{ctx, func() {
				w.event()
				go func() { closed <- w.close() }()
				for !w.closing() {
					runtime.Gosched()
				}
			}}))
			require.NoError(t, <-closed)
		})
	}
}

// TestCloseBeatsAFreeLock: a lock becomes free while a call that wants it is about to sleep. Then the handle is
// closed before the call runs again. The call fails, and the lock stays free. If the call took the lock, it would
// still have the lock when the arena is closed. Then other processes would find the lock as if its holder had died.
func TestCloseBeatsAFreeLock(t *testing.T) {
	if !shmsync.FeatureWaitV.Have() {
		t.Skip("needs futex_waitv: without it, a wait with a context does not sleep in the kernel")
	}
	type lock struct {
		wait    func(ctx context.Context) error
		free    func()
		close   func() error
		closing func() bool
	}
	for name, open := range map[string]func(t *testing.T, a *arena.Arena) lock{
		"mutex": func(t *testing.T, a *arena.Arena) lock {
			m, err := prims.OpenMutex(a, "l", nil)
			require.NoError(t, err)
			m.Lock()
			return lock{m.LockContext, m.Unlock, m.Close, m.Closing}
		},
		"rwmutex": func(t *testing.T, a *arena.Arena) lock {
			m, err := prims.OpenRWMutex(a, "l", nil)
			require.NoError(t, err)
			m.RLock()
			return lock{m.LockContext, m.RUnlock, m.Close, m.Refuses}
		},
		"spinlock": func(t *testing.T, a *arena.Arena) lock {
			l, err := prims.OpenSpinLock(a, "l", nil)
			require.NoError(t, err)
			l.Lock()
			return lock{l.LockContext, l.Unlock, l.Close, l.Closing}
		},
		"rwspinlock": func(t *testing.T, a *arena.Arena) lock {
			l, err := prims.OpenRWSpinLock(a, "l", nil)
			require.NoError(t, err)
			l.RLock()
			return lock{l.LockContext, l.RUnlock, l.Close, l.Closing}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			l := open(t, a)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			closed := make(chan error, 1)
			require.ErrorIs(t, l.wait(beforeSleepContext{ctx, func() {
				l.free()
				go func() { closed <- l.close() }()
				for !l.closing() {
					runtime.Gosched()
				}
			}}), shmsync.ErrClosed)
			require.NoError(t, <-closed)
			require.NoError(t, a.Delete("l"), "no process holds the lock")
		})
	}
}

//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// opened is a handle of some kind, for the tests below.
type opened struct {
	Close func() error
	// Use has the calls that a closed handle must refuse, by an error or by a panic.
	Use map[string]func() error
	// Block makes a call of Wait block. Free lets it go on.
	Block, Free func()
	Wait        func(context.Context) error
	// Hold is set if Block leaves a hold that outlives the handle, so that Delete fails. A Once has
	// no such hold: its function ends by itself.
	Hold bool
}

func plain(f func()) func() error { return func() error { f(); return nil } }

var handleKinds = map[string]func(a *arena.Arena) (*opened, error){
	"mutex": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenMutex(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{m.Close, map[string]func() error{
			"Lock": plain(m.Lock), "LockContext": func() error { return m.LockContext(context.Background()) },
			"TryLock": plain(func() { m.TryLock() }), "Unlock": plain(m.Unlock), "State": plain(func() { m.State() }),
			"Recover": func() error { return m.Recover(func() error { return nil }) },
		}, m.Lock, m.Unlock, lockWait(m.LockContext, m.Unlock), true}, nil
	},
	"checked mutex": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenMutex(a, "x", &prims.MutexOptions{Checked: true})
		if err != nil {
			return nil, err
		}
		return &opened{m.Close, map[string]func() error{"Lock": plain(m.Lock), "Unlock": plain(m.Unlock)},
			m.Lock, m.Unlock, lockWait(m.LockContext, m.Unlock), true}, nil
	},
	"cohort mutex": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenCohortMutex(a, "x", &prims.CohortMutexOptions{Nodes: 2})
		if err != nil {
			return nil, err
		}
		return &opened{m.Close, map[string]func() error{
			"Lock": plain(m.Lock), "TryLock": plain(func() { m.TryLock() }), "Unlock": plain(m.Unlock), "State": plain(func() { m.State() }),
		}, m.Lock, m.Unlock, lockWait(m.LockContext, m.Unlock), true}, nil
	},
	"fair mutex": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenFairMutex(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{m.Close, map[string]func() error{
			"Lock": plain(m.Lock), "TryLock": plain(func() { m.TryLock() }), "Unlock": plain(m.Unlock), "State": plain(func() { m.State() }),
			"LockAsync": func() error { return m.LockAsync().Wait() },
		}, m.Lock, m.Unlock, lockWait(m.LockContext, m.Unlock), true}, nil
	},
	"spin lock": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenSpinLock(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{m.Close, map[string]func() error{
			"Lock": plain(m.Lock), "TryLock": plain(func() { m.TryLock() }), "Unlock": plain(m.Unlock), "State": plain(func() { m.State() }),
		}, m.Lock, m.Unlock, lockWait(m.LockContext, m.Unlock), true}, nil
	},
	"rwmutex, written": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenRWMutex(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{m.Close, map[string]func() error{
			"Lock": plain(m.Lock), "TryLock": plain(func() { m.TryLock() }), "Unlock": plain(m.Unlock), "State": plain(func() { m.State() }),
			"RLock": plain(m.RLock), "TryRLock": plain(func() { m.TryRLock() }), "RUnlock": plain(m.RUnlock), "Downgrade": plain(m.Downgrade),
			"RLockContext": func() error { return m.RLockContext(context.Background()) },
		}, m.Lock, m.Unlock, lockWait(m.RLockContext, m.RUnlock), true}, nil
	},
	"rwmutex, read": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenRWMutex(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{m.Close, nil, m.RLock, m.RUnlock, lockWait(m.LockContext, m.Unlock), true}, nil
	},
	"reader/writer spin lock, written": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenRWSpinLock(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{m.Close, map[string]func() error{
			"Lock": plain(m.Lock), "TryLock": plain(func() { m.TryLock() }), "Unlock": plain(m.Unlock), "State": plain(func() { m.State() }),
			"RLock": plain(m.RLock), "TryRLock": plain(func() { m.TryRLock() }), "RUnlock": plain(m.RUnlock),
			"LockUpgradable": plain(m.LockUpgradable), "UnlockUpgradable": plain(m.UnlockUpgradable),
		}, m.Lock, m.Unlock, lockWait(m.RLockContext, m.RUnlock), true}, nil
	},
	"reader/writer spin lock, read": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenRWSpinLock(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{m.Close, nil, m.RLock, m.RUnlock, lockWait(m.LockContext, m.Unlock), true}, nil
	},
	"multilock": func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenMultiLock(a, "x", nil)
		if err != nil {
			return nil, err
		}
		var h prims.Hold
		return &opened{m.Close, map[string]func() error{
			"Lock": plain(func() { m.Lock(7) }), "TryLock": plain(func() { m.TryLock(7) }), "State": plain(func() { m.State(7) }),
			"LockAll": func() error { _, err := m.LockAllContext(context.Background(), 1, 2); return err },
		}, func() { h = m.Lock(7) }, func() { h.Unlock() }, func(ctx context.Context) error {
			hs, err := m.LockAllContext(ctx, 1, 7)
			if err == nil {
				hs.Unlock()
			}
			return err
		}, true}, nil
	},
	"semaphore": func(a *arena.Arena) (*opened, error) {
		s, err := prims.OpenSemaphore(a, "x", 2, nil)
		if err != nil {
			return nil, err
		}
		return &opened{s.Close, map[string]func() error{
			"Acquire": func() error { return s.AcquireContext(context.Background(), 1) }, "TryAcquire": plain(func() { s.TryAcquire(1) }),
			"Release": plain(func() { s.Release(1) }), "State": plain(func() { s.State() }),
		}, func() {
			for range 3 { // the Semaphore caches the permits for this process from the second release on
				s.AcquireContext(context.Background(), 2)
				s.Release(2)
			}
			s.AcquireContext(context.Background(), 2)
		}, func() { s.Release(2) }, lockWait(func(ctx context.Context) error { return s.AcquireContext(ctx, 1) }, func() { s.Release(1) }), true}, nil
	},
	"transferable semaphore": func(a *arena.Arena) (*opened, error) {
		s, err := prims.OpenSemaphore(a, "x", 1, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable, Initial: -1})
		if err != nil {
			return nil, err
		}
		return &opened{s.Close, map[string]func() error{
			"Acquire": func() error { return s.AcquireContext(context.Background(), 1) }, "TryAcquire": plain(func() { s.TryAcquire(1) }),
			"Release": plain(func() { s.Release(1) }),
		}, func() {}, func() { s.Release(1) }, func(ctx context.Context) error { return s.AcquireContext(ctx, 1) }, false}, nil
	},
	"futex": func(a *arena.Arena) (*opened, error) {
		f, err := prims.OpenFutex(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{f.Close, map[string]func() error{
			"Get": plain(func() { f.Get() }), "Post": plain(f.Post), "Stop": plain(f.Stop), "Wait": func() error { return f.Wait(1) },
			"At": func() error { _, err := prims.WaitAny(f.At(1)); return err },
		}, func() {}, f.Post, func(ctx context.Context) error { return f.WaitContext(ctx, 1) }, false}, nil
	},
	"futex, with others": func(a *arena.Arena) (*opened, error) {
		f, err := prims.OpenFutex(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{f.Close, nil, func() {}, f.Post, func(ctx context.Context) error { return prims.WaitAllContext(ctx, f.At(1)) }, false}, nil
	},
	"sequencer": func(a *arena.Arena) (*opened, error) {
		s, err := prims.OpenSequencer(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{s.Close, map[string]func() error{
			"Value": plain(func() { s.Value() }), "Increment": plain(func() { s.Increment() }), "Advance": plain(func() { s.Advance(3) }),
			"Wait": func() error { return s.Wait(0) }, "Stop": plain(s.Stop), "CancelWaiters": plain(s.CancelWaiters),
			"At": func() error { _, err := prims.WaitAny(s.At(0)); return err },
		}, func() {}, func() { s.Increment() }, func(ctx context.Context) error { return s.WaitContext(ctx, 1) }, false}, nil
	},
	"sequencer, with others": func(a *arena.Arena) (*opened, error) {
		s, err := prims.OpenSequencer(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{s.Close, nil, func() {}, func() { s.Increment() },
			func(ctx context.Context) error { _, err := prims.WaitAnyContext(ctx, s.At(1)); return err }, false}, nil
	},
	"sequencer, pending": func(a *arena.Arena) (*opened, error) {
		s, err := prims.OpenSequencer(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{s.Close, nil, func() {}, func() { s.Increment() }, func(context.Context) error { return s.WaitAsync(1).Wait() }, false}, nil
	},
	"event": func(a *arena.Arena) (*opened, error) {
		e, err := prims.OpenEvent(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{e.Close, map[string]func() error{
			"Set": plain(e.Set), "Reset": plain(func() { e.Reset() }), "IsSet": plain(func() { e.IsSet() }), "Wait": plain(e.Wait),
			"WaitAny": func() error { _, err := prims.WaitAny(e); return err },
		}, func() {}, e.Set, e.WaitContext, false}, nil
	},
	"auto-reset event": func(a *arena.Arena) (*opened, error) {
		e, err := prims.OpenEvent(a, "x", &prims.EventOptions{Mode: prims.EventAutoReset})
		if err != nil {
			return nil, err
		}
		return &opened{e.Close, map[string]func() error{"Set": plain(e.Set), "Reset": plain(func() { e.Reset() }), "IsSet": plain(func() { e.IsSet() }), "Wait": plain(e.Wait)},
			func() {}, e.Set, e.WaitContext, false}, nil
	},
	"future": func(a *arena.Arena) (*opened, error) {
		f, err := prims.OpenFuture(a, "x", nil)
		if err != nil {
			return nil, err
		}
		wait := func(ctx context.Context) error { _, err := f.WaitContext(ctx); return err }
		return &opened{f.Close, map[string]func() error{
			"Claim": plain(func() { f.Claim() }), "Set": plain(func() { f.Set(0) }), "IsSet": plain(func() { f.IsSet() }),
			"Wait": func() error { return wait(context.Background()) },
		}, func() {}, func() { f.Set(0) }, wait, false}, nil
	},
	"waitgroup": func(a *arena.Arena) (*opened, error) {
		g, err := prims.OpenWaitGroup(a, "x", nil)
		if err != nil {
			return nil, err
		}
		return &opened{g.Close, map[string]func() error{
			"Add": plain(func() { g.Add(1) }), "Done": plain(g.Done), "Wait": plain(g.Wait),
			"WaitContext": func() error { return g.WaitContext(context.Background()) }, "State": plain(func() { g.State() }),
		}, func() { g.Add(1) }, g.Done, g.WaitContext, false}, nil
	},
	"latch": func(a *arena.Arena) (*opened, error) {
		l, err := prims.OpenLatch(a, "x", 1, nil)
		if err != nil {
			return nil, err
		}
		return &opened{l.Close, map[string]func() error{
			"CountDown": plain(func() { l.CountDown(1) }), "TryWait": plain(func() { l.TryWait() }), "Wait": plain(l.Wait),
			"WaitContext": func() error { return l.WaitContext(context.Background()) }, "State": plain(func() { l.State() }),
		}, func() {}, func() { l.CountDown(1) }, l.WaitContext, false}, nil
	},
	"barrier": func(a *arena.Arena) (*opened, error) {
		b, err := prims.OpenBarrier(a, "x", 1, nil)
		if err != nil {
			return nil, err
		}
		return &opened{b.Close, map[string]func() error{
			"Arrive": plain(func() { b.Arrive(1) }), "Wait": plain(func() { b.Wait(0) }), "State": plain(func() { b.State() }),
			"WaitContext": func() error { return b.WaitContext(context.Background(), 0) },
		}, func() {}, func() { b.Arrive(1) }, func(ctx context.Context) error { return b.WaitContext(ctx, 0) }, false}, nil
	},
	"once": func(a *arena.Arena) (*opened, error) {
		o, err := prims.OpenOnce(a, "x", nil)
		if err != nil {
			return nil, err
		}
		release, running, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		return &opened{o.Close, map[string]func() error{
			"Do": plain(func() { o.Do(func() {}) }), "DoContext": func() error { return o.DoContext(context.Background(), func() {}) },
			"Done": plain(func() { o.Done() }), "State": plain(func() { o.State() }),
		}, func() {
			go func() {
				defer close(done)
				o.Do(func() { close(running); <-release })
			}()
			<-running
		}, func() { close(release); <-done }, func(ctx context.Context) error { return o.DoContext(ctx, func() {}) }, false}, nil
	},
	"queue, empty": func(a *arena.Arena) (*opened, error) {
		q, err := prims.OpenQueue[int](a, "x", 1, nil)
		if err != nil {
			return nil, err
		}
		get := func(ctx context.Context) error { _, err := q.GetContext(ctx); return err }
		return &opened{q.Close, map[string]func() error{
			"Put": func() error { return q.Put(1) }, "TryPut": plain(func() { q.TryPut(1) }), "Get": func() error { return get(context.Background()) },
			"TryGet": plain(func() { q.TryGet() }), "Len": plain(func() { q.Len() }), "Shutdown": plain(q.Shutdown),
			"Lease": func() error { _, err := q.Lease(); return err },
		}, func() {}, func() { q.Put(1) }, get, false}, nil
	},
	"queue, full": func(a *arena.Arena) (*opened, error) {
		q, err := prims.OpenQueue[int](a, "x", 1, nil)
		if err != nil {
			return nil, err
		}
		return &opened{q.Close, nil, func() { q.Put(1) }, func() { q.Get() }, func(ctx context.Context) error { return q.PutContext(ctx, 2) }, false}, nil
	},
	"queue, leased": func(a *arena.Arena) (*opened, error) {
		q, err := prims.OpenQueue[int](a, "x", 1, nil)
		if err != nil {
			return nil, err
		}
		var l prims.Lease[int]
		return &opened{q.Close, nil, func() {
			q.Put(1)
			l, _ = q.Lease()
		}, func() { l.Ack() }, func(ctx context.Context) error { return q.PutContext(ctx, 2) }, true}, nil
	},
	"waitable": func(a *arena.Arena) (*opened, error) {
		w, err := prims.OpenWaitable(a, "x", false, prims.Rules[bool, uint8]{
			Claim: func(taken *bool, _ uint8) bool {
				ok := !*taken
				*taken = true
				return ok
			},
			Release: func(taken *bool, _ uint8) { *taken = false },
		}, nil)
		if err != nil {
			return nil, err
		}
		return &opened{w.Close, map[string]func() error{
			"Wait": func() error { return w.Wait(1) }, "TryWait": plain(func() { w.TryWait(1) }),
			"Release": plain(func() { w.Release(1) }), "State": plain(func() { w.State() }),
		}, func() { w.TryWait(1) }, func() { w.Release(1) },
			lockWait(func(ctx context.Context) error { return w.WaitContext(ctx, 1) }, func() { w.Release(1) }), true}, nil
	},
	"synchronized": func(a *arena.Arena) (*opened, error) {
		s, err := prims.OpenSynchronized(a, "x", 0, nil)
		if err != nil {
			return nil, err
		}
		in, out, ended := make(chan bool), make(chan bool), make(chan bool)
		nothing := func(*int) error { return nil }
		return &opened{s.Close, map[string]func() error{
			"Update": func() error { return s.Update(nothing) }, "View": func() error { return s.View(nothing) },
			"Store": plain(func() { s.Store(1) }), "Load": plain(func() { s.Load() }), "State": plain(func() { s.State() }),
		}, func() {
			h, err := prims.OpenSynchronized(a, "x", 0, nil) // not s: Close waits for the Updates of its own handle
			if err != nil {
				panic(err)
			}
			go func() {
				h.Update(func(*int) error {
					in <- true
					<-out
					return nil
				})
				h.Close()
				ended <- true
			}()
			<-in
		}, func() {
			out <- true
			<-ended
		}, func(ctx context.Context) error { return s.UpdateContext(ctx, nothing) }, false}, nil
	},
	"cond": func(a *arena.Arena) (*opened, error) {
		var mu sync.Mutex
		c, err := prims.OpenCond(a, "x", &mu, nil)
		if err != nil {
			return nil, err
		}
		return &opened{c.Close, map[string]func() error{"Signal": plain(c.Signal), "Broadcast": plain(c.Broadcast), "State": plain(func() { c.State() })},
			func() {}, c.Broadcast, func(ctx context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				return c.WaitContext(ctx)
			}, false}, nil
	},
	"signal waker": func(a *arena.Arena) (*opened, error) {
		w, err := prims.OpenSignalWaker(a, "x", nil)
		if err != nil {
			return nil, err
		}
		g := w.Gate(1)
		return &opened{w.Close, map[string]func() error{
			"Acquire": plain(w.Acquire), "AcquireContext": func() error { return w.AcquireContext(context.Background()) },
			"Schedule": plain(func() { g.Schedule() }), "Next": plain(func() { w.Next(0) }), "Signal": plain(func() { w.Signal(0).Set(1) }),
		}, func() {}, func() { w.Release(1) }, w.AcquireContext, false}, nil
	},
}

// lockWait returns a wait that locks, and unlocks at once if it got the lock.
func lockWait(lock func(context.Context) error, unlock func()) func(context.Context) error {
	return func(ctx context.Context) error {
		err := lock(ctx)
		if err == nil {
			unlock()
		}
		return err
	}
}

func eachHandleKind(t *testing.T, f func(t *testing.T, a *arena.Arena, open func() *opened)) {
	for kind, open := range handleKinds {
		t.Run(kind, func(t *testing.T) {
			a := newArena(t, nil)
			f(t, a, func() *opened {
				h, err := open(a)
				require.NoError(t, err)
				return h
			})
		})
	}
}

// waiting returns when n goroutines wait for an object, in any way.
func waiting(t *testing.T, a *arena.Arena, name string, n int) {
	t.Helper()
	o, err := objectNamed(a, name)
	require.NoError(t, err)
	eventually(t, "waiting", func() string { return words(a) }, func() bool {
		count := 0
		for _, w := range (*arenakernel.Arena)(a).WaitsOf(o) {
			count += int(max(w.Count, 1))
		}
		return count >= n
	})
}

func objectNamed(a *arena.Arena, name string) (found arenakernel.Object, err error) {
	err = fmt.Errorf("no object is called %q", name)
	for o := range a.Objects() {
		if o.Name == name {
			found, err = arenakernel.Object(o), nil
		}
	}
	return found, err
}

// TestCloseEndsItsOwnOpeningOnly: Close ends the opening of its handle and no other opening, even
// if it is called several times.
func TestCloseEndsItsOwnOpeningOnly(t *testing.T) {
	eachHandleKind(t, func(t *testing.T, a *arena.Arena, open func() *opened) {
		mine, theirs := open(), open()
		require.NoError(t, mine.Close())
		for range 3 {
			require.ErrorIs(t, mine.Close(), shmsync.ErrClosed)
		}
		require.ErrorIs(t, a.Delete("x"), syscall.EBUSY, "the other component has it open")
		theirs.Block()
		theirs.Free()
		require.NoError(t, theirs.Close())
		require.NoError(t, a.Delete("x"))
		sound(t, a)
	})
}

// TestUseOfAClosedHandle: a closed handle refuses calls. A call that can return an error returns
// ErrClosed; any other call panics with the name of the object. The call changes no words, not even
// those of the next object at that offset.
func TestUseOfAClosedHandle(t *testing.T) {
	eachHandleKind(t, func(t *testing.T, a *arena.Arena, open func() *opened) {
		mine := open()
		require.NoError(t, mine.Close())
		require.NoError(t, a.Delete("x"))
		next, err := a.Block("next", 4096) // most likely the same bytes
		require.NoError(t, err)
		for verb, use := range mine.Use {
			refused(t, verb, use)
		}
		require.Equal(t, make([]byte, 4096), next, "a closed handle has written into another object")
	})
}

func refused(t *testing.T, verb string, use func() error) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			require.Contains(t, fmt.Sprint(r), "x", verb)
			require.Contains(t, fmt.Sprint(r), "closed", verb)
		}
	}()
	require.ErrorIs(t, use(), shmsync.ErrClosed, verb)
}

// TestCloseEndsTheWaitsOfItsHandle: Close ends the waits of its handle with ErrClosed. The waits of
// other handles go on.
func TestCloseEndsTheWaitsOfItsHandle(t *testing.T) {
	eachHandleKind(t, func(t *testing.T, a *arena.Arena, open func() *opened) {
		holder, mine, theirs := open(), open(), open()
		holder.Block()
		ended, granted := make(chan error, 1), make(chan error, 1)
		go func() { ended <- mine.Wait(context.Background()) }()
		waiting(t, a, "x", 1)
		go func() { granted <- theirs.Wait(context.Background()) }()
		waiting(t, a, "x", 2)
		require.NoError(t, mine.Close())
		require.ErrorIs(t, <-ended, shmsync.ErrClosed)
		require.Empty(t, granted, "the wait through another handle has ended")
		holder.Free()
		require.NoError(t, <-granted)
		sound(t, a)
	})
}

// TestRLockBesideCloseLeavesNoHold: an RLock counts itself in the reader word, finds that its handle is being closed,
// and takes its count back. A closed handle has a private word in place of the reader word. An RLock through a closed
// handle does not change the reader word.
func TestRLockBesideCloseLeavesNoHold(t *testing.T) {
	a := newArena(t, nil)
	keep, err := prims.OpenRWMutex(a, "x", nil)
	require.NoError(t, err)
	m, err := prims.OpenRWMutex(a, "x", nil)
	require.NoError(t, err)
	keep.RLock()
	m.CloseHalf()
	require.ErrorIs(t, m.RLockContext(t.Context()), shmsync.ErrClosed)
	require.Panics(t, m.RLock)
	require.Equal(t, 1, keep.State().Readers)

	m, err = prims.OpenRWMutex(a, "x", nil)
	require.NoError(t, err)
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.RLockContext(t.Context()), shmsync.ErrClosed)
	require.Panics(t, m.RLock)
	require.Equal(t, 1, keep.State().Readers)
	keep.RUnlock()
	require.True(t, keep.TryLock())
	keep.Unlock()
}

// TestCloseWhileTheFunctionOfAOnceRuns: a handle of a Once is closed while Do runs the function. When the function
// returns, the Once is done, and Do does not panic.
func TestCloseWhileTheFunctionOfAOnceRuns(t *testing.T) {
	a := newArena(t, nil)
	open := func() *prims.Once {
		o, err := prims.OpenOnce(a, "x", nil)
		require.NoError(t, err)
		return o
	}
	mine, theirs := open(), open()
	running, goOn, done := make(chan struct{}), make(chan struct{}), make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		mine.Do(func() { close(running); <-goOn })
	}()
	<-running
	waits := make(chan error, 1)
	go func() {
		waits <- theirs.DoContext(context.Background(), func() { t.Error("a second function ran") })
	}()
	waiting(t, a, "x", 1)
	require.NoError(t, mine.Close())
	close(goOn)
	require.Nil(t, <-done, "Do has panicked")
	require.NoError(t, <-waits)
	require.True(t, theirs.Done())
	require.NoError(t, theirs.Close())
	require.NoError(t, a.Delete("x"))
	sound(t, a)
}

// TestCloseWhileTheCompletionOfABarrierRuns: a handle is closed while a call through it runs the
// completion function of a Barrier. Close waits for that function. Otherwise the phase would not
// end before this process dies.
func TestCloseWhileTheCompletionOfABarrierRuns(t *testing.T) {
	a := newArena(t, nil)
	running, goOn := make(chan struct{}), make(chan struct{})
	mine, err := prims.OpenBarrier(a, "x", 1, &prims.BarrierOptions{Completion: func() { close(running); <-goOn }})
	require.NoError(t, err)
	theirs, err := prims.OpenBarrier(a, "x", 1, nil)
	require.NoError(t, err)
	arrives, waits, closes := make(chan any, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		defer func() { arrives <- recover() }()
		mine.Arrive(1)
	}()
	<-running
	go func() { waits <- theirs.WaitContext(context.Background(), 0) }()
	waiting(t, a, "x", 1)
	go func() { closes <- mine.Close() }()
	eventually(t, "Close is at work", func() string { return words(a) }, mine.Closing)
	close(goOn)
	require.Nil(t, <-arrives, "Arrive has panicked")
	require.NoError(t, <-waits)
	require.NoError(t, <-closes)
	sound(t, a)
}

// TestDeleteRefusesWhatIsHeld: if a process holds an object, Delete fails and names the holder,
// even if no handle is open. If no process holds the object, Delete deletes it.
func TestDeleteRefusesWhatIsHeld(t *testing.T) {
	eachHandleKind(t, func(t *testing.T, a *arena.Arena, open func() *opened) {
		h := open()
		if !h.Hold {
			require.NoError(t, h.Close())
			require.NoError(t, a.Delete("x"), "nobody holds it")
			return
		}
		h.Block()
		require.NoError(t, h.Close())
		err := a.Delete("x")
		require.ErrorIs(t, err, syscall.EBUSY)
		require.ErrorContains(t, err, fmt.Sprintf("slot %v) holds it", a.Self()))
		if strings.HasSuffix(t.Name(), "/queue,_leased") || strings.HasSuffix(t.Name(), "/multilock") { // a lease, or a Hold, outlives its handle
			h.Free()
			require.NoError(t, a.Delete("x"))
			return
		}
		refused(t, "giving it back by the closed handle", plain(h.Free))
	})
}

// TestArenaOpeningsAreClosedSeparately: a process has opened an arena twice. Closing one opening ends
// the handles that were opened through it. Handles from the other opening still work.
func TestArenaOpeningsAreClosedSeparately(t *testing.T) {
	for kind, open := range handleKinds {
		t.Run(kind, func(t *testing.T) {
			name := arenaName(t)
			one, err := arena.Open(name, nil)
			require.NoError(t, err)
			two, err := arena.Open(name, nil)
			require.NoError(t, err)
			mine, err := open(one)
			require.NoError(t, err)
			theirs, err := open(two)
			require.NoError(t, err)
			require.NoError(t, one.Close())
			for range 3 {
				require.ErrorIs(t, one.Close(), shmsync.ErrClosed)
			}
			for verb, use := range mine.Use {
				refused(t, verb, use)
			}
			_, err = open(one)
			require.ErrorIs(t, err, shmsync.ErrClosed)
			theirs.Block()
			theirs.Free()
			sound(t, two)
			require.NoError(t, two.Close())
			for verb, use := range theirs.Use {
				refused(t, verb, use)
			}
			_, err = open(two)
			require.ErrorIs(t, err, shmsync.ErrClosed)
		})
	}
}

// TestRepairIsTheHandlesOwn: options for the calls of a handle belong to that handle only.
func TestRepairIsTheHandlesOwn(t *testing.T) {
	a := newArena(t, nil)
	dies := remoteActor(t, a, "dies")
	first, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	repaired := 0
	second, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Repair: func() error { repaired++; return nil }})
	require.NoError(t, err)
	dies.must(t, order{Op: "lock", Object: "m"})
	dies.proc.Kill(t)
	alone(t, a, 1)
	require.ErrorIs(t, first.LockContext(t.Context()), shmsync.ErrOwnerDead)
	require.NoError(t, second.LockContext(t.Context()))
	require.Equal(t, 1, repaired)
	first.Unlock() // the process has the hold, so any handle can release it
}

// TestHoldsBelongToTheProcess: a hold that one handle took can be released through another handle,
// even if the handles have different options.
func TestHoldsBelongToTheProcess(t *testing.T) {
	a := newArena(t, nil)
	fast, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	checked, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Checked: true})
	require.NoError(t, err)
	for range 10000 { // so that the holds of the first handle become biased
		fast.Lock()
		fast.Unlock()
	}
	for range 10 {
		fast.Lock()
		checked.Unlock()
		checked.Lock()
		fast.Unlock()
	}
	require.False(t, fast.State().Held)
	require.Panics(t, checked.Unlock)
}

// TestRepairOpensAnArenaDuringClose: an arena is closed while a Repair runs. Close waits for the
// Repair and holds no lock that the Repair needs, so the Repair can open an arena.
func TestRepairOpensAnArenaDuringClose(t *testing.T) {
	name, other := arenaName(t), arenaName(t)
	a, err := arena.Create(name, nil)
	require.NoError(t, err)
	dies := remoteActor(t, a, "dies")
	inside, goOn := make(chan struct{}), make(chan struct{})
	m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Repair: func() error {
		close(inside)
		<-goOn
		b, err := arena.Create(other, nil)
		if err != nil {
			return err
		}
		return b.Close()
	}})
	require.NoError(t, err)
	dies.must(t, order{Op: "lock", Object: "m"})
	dies.proc.Kill(t)
	alone(t, a, 1)
	repairs, waits, closes := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { repairs <- m.LockContext(context.Background()) }()
	<-inside
	go func() { waits <- m.LockContext(context.Background()) }()
	waiting(t, a, "m", 1)
	go func() { closes <- a.Close() }()
	require.ErrorIs(t, <-waits, shmsync.ErrClosed) // so Close has begun
	close(goOn)
	require.NoError(t, <-repairs)
	require.NoError(t, <-closes)
}

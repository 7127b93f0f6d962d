//go:build linux

package prims_test

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestHandlesOfObjectsThatComeAndGo: objects of several kinds are created and deleted at the same
// offset. Each handle has the common part of its own object.
func TestHandlesOfObjectsThatComeAndGo(t *testing.T) {
	a := newArena(t, nil)
	rounds := proctest.Rounds(10_000, 300_000)
	fine := func(err error) bool {
		return err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EBUSY) || errors.Is(err, shmsync.ErrClosed)
	}
	use := map[string]func() error{
		"multi": func() error {
			x, err := prims.OpenMultiLock(a, "multi", &prims.MultiLockOptions{Buckets: 1})
			if err != nil {
				return err
			}
			x.Lock(1).Unlock()
			return x.Close()
		},
		"fair": func() error {
			f, err := prims.OpenFairMutex(a, "fair", nil)
			if err != nil {
				return err
			}
			f.Lock()
			f.Unlock()
			return f.Close()
		},
		"rw": func() error {
			m, err := prims.OpenRWMutex(a, "rw", nil)
			if err != nil {
				return err
			}
			return m.Close()
		},
	}
	wrong := make(chan error, 2*len(use))
	var wg sync.WaitGroup
	repeat := func(f func() error) {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					wrong <- fmt.Errorf("panic: %v", r)
				}
			}()
			for range rounds {
				if err := f(); !fine(err) {
					wrong <- err
					return
				}
			}
		})
	}
	for name, f := range use {
		repeat(f)
		repeat(func() error { return a.Delete(name) })
	}
	wg.Wait()
	close(wrong)
	for err := range wrong {
		require.NoError(t, err)
	}
	require.Zero(t, prims.Commons(a), "common parts without a handle")
}

// TestCommonPartEndsBeforeTheObject: an object can be deleted only after the process has dropped
// the common part of its handles. So the next object at this offset gets its own common part.
func TestCommonPartEndsBeforeTheObject(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFairMutex(a, "f", nil)
	require.NoError(t, err)
	resume := prims.StopHandles()
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	for !f.Ended() {
		runtime.Gosched()
	}
	for range 1000 {
		if err = a.Delete("f"); err == nil {
			break
		}
		runtime.Gosched()
	}
	resume()
	require.ErrorIs(t, err, syscall.EBUSY)
	require.NoError(t, <-closed)
	require.Zero(t, prims.Commons(a))
	require.NoError(t, a.Delete("f"))
}

// TestHandlesShareTheirTurns: all handles of a process on a FairMutex share their turns, including
// handles that are opened while others are closed.
func TestHandlesShareTheirTurns(t *testing.T) {
	a := newArena(t, nil)
	open := func() *prims.FairMutex {
		f, err := prims.OpenFairMutex(a, "f", nil)
		require.NoError(t, err)
		return f
	}
	for range proctest.Rounds(20_000, 200_000) {
		first := open()
		var second *prims.FairMutex
		var wg sync.WaitGroup
		wg.Go(func() { first.Close() })
		wg.Go(func() { second, _ = prims.OpenFairMutex(a, "f", nil) })
		wg.Wait()
		require.NotNil(t, second)
		third := open()
		require.True(t, second.SharesTurns(third))
		require.NoError(t, errors.Join(second.Close(), third.Close()))
	}
	require.Zero(t, prims.Commons(a), "common parts without a handle")
}

// TestMultiLockRecoverAfterClose: Recover on a closed MultiLock fails. It leaves the bytes at the
// offset of the MultiLock as they are, because the next object may have them.
func TestMultiLockRecoverAfterClose(t *testing.T) {
	a := newArena(t, nil)
	x, err := prims.OpenMultiLock(a, "x", &prims.MultiLockOptions{Buckets: 1})
	require.NoError(t, err)
	off := x.Offset()
	require.NoError(t, x.Close())
	require.ErrorIs(t, x.Recover(5, func() error { return nil }), shmsync.ErrClosed)
	require.NoError(t, a.Delete("x"))
	next, err := prims.OpenMultiLock(a, "next", &prims.MultiLockOptions{Buckets: 1})
	require.NoError(t, err)
	require.Equal(t, off, next.Offset(), "the next object is at another place: the test shows nothing")

	y, err := prims.OpenMultiLock(a, "y", nil)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.ErrorIs(t, y.Recover(5, func() error { return nil }), shmsync.ErrClosed, "after the end of the arena")
}

// TestMultiLockOpensNoBucketAfterClose: a call reaches a bucket of a MultiLock after the handle has ended. The call
// must not touch the bytes of the bucket, which may belong to another object.
func TestMultiLockOpensNoBucketAfterClose(t *testing.T) {
	a := newArena(t, nil)
	x, err := prims.OpenMultiLock(a, "x", &prims.MultiLockOptions{Buckets: 1})
	require.NoError(t, err)
	require.False(t, x.Opens(5, func() {
		require.NoError(t, x.Close())
		require.NoError(t, a.Delete("x"))
	}))
	x, err = prims.OpenMultiLock(a, "x", nil)
	require.NoError(t, err)
	require.True(t, x.Opens(5, func() {}))
}

// TestCloseDuringRecover: a handle is closed while a Recover through it runs its repair. The end of
// the repair is still recorded, so that other processes get the lock.
func TestCloseDuringRecover(t *testing.T) {
	type lock struct {
		close   func() error
		recover func(repair func() error) error
		try     func() bool
	}
	kinds := map[string]struct {
		op   string
		open func(a *arena.Arena) (lock, error)
	}{
		"fairmutex": {"flock", func(a *arena.Arena) (lock, error) {
			f, err := prims.OpenFairMutex(a, "x", nil)
			return lock{f.Close, f.Recover, f.TryLock}, err
		}},
		"multilock": {"mlock", func(a *arena.Arena) (lock, error) {
			m, err := prims.OpenMultiLock(a, "x", nil)
			return lock{m.Close, func(repair func() error) error { return m.Recover(7, repair) }, func() bool {
				_, ok := m.TryLock(7)
				return ok
			}}, err
		}},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			mine, err := kind.open(a)
			require.NoError(t, err)
			other, err := kind.open(a)
			require.NoError(t, err)
			dies := lockActor(t, a, "dies")
			dies.must(t, order{Op: kind.op, Object: "x", Token: 7})
			dies.proc.Kill(t)
			alone(t, a, 1)
			require.NoError(t, mine.recover(mine.close))
			require.ErrorIs(t, mine.close(), shmsync.ErrClosed)
			require.True(t, other.try(), "the lock is not free after the repair")
			require.NoError(t, other.close())
		})
	}
}

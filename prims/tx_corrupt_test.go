//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// wrapping is a lock whose Lock panics with an error that wraps the one of a Mutex.
type wrapping struct{ *prims.Mutex }

func (w wrapping) Lock() {
	defer func() {
		if err, ok := recover().(error); ok {
			panic(fmt.Errorf("wrapped: %w", err))
		}
	}()
	w.Mutex.Lock()
}

// bare hides the method LockContext of a lock.
type bare struct{ sync.Locker }

// TestLockWithACorruptLogPanicsWithAnError: a lock is not recoverable because its undo log cannot be undone. Lock panics
// with an *Error that Is ErrNotRecoverable and ErrCorrupt. A wait for a Cond returns that error, even if the lock of the
// Cond wraps it in another error.
func TestLockWithACorruptLogPanicsWithAnError(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRollback})
	require.NoError(t, err)
	rw, err := prims.OpenRWMutex(a, "rw", &prims.RWMutexOptions{Policy: prims.PolicyRollback})
	require.NoError(t, err)
	m.Lock()
	c, err := prims.OpenCond(a, "c", bare{wrapping{m}}, nil)
	require.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- c.WaitContext(context.Background()) }()
	eventually(t, "it waits", func() string { return words(a) }, func() bool { return c.State().Waiting == 1 })
	prims.LoseLog(m)
	prims.LoseRWLog(rw)
	c.Signal()
	same := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
		require.ErrorIs(t, err, shmsync.ErrCorrupt)
		require.ErrorIs(t, err, syscall.ENOTRECOVERABLE)
		require.ErrorIs(t, err, syscall.EPROTO)
		require.ErrorContains(t, err, "its undo log cannot be undone")
	}
	same(<-ended)
	for _, lock := range []func(){m.Lock, rw.Lock, rw.RLock} {
		func() {
			defer func() {
				e, ok := recover().(*shmsync.Error)
				require.True(t, ok, "it panics with an *Error")
				same(e)
			}()
			lock()
		}()
	}
	same(m.LockContext(t.Context()))
	same(rw.RLockContext(t.Context()))
}

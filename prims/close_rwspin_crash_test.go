//go:build linux && crashpoint

package prims_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// TestRWSpinLockBesideTheCloseOfTheArena checks that a Close of the arena waits for a call that has claimed the lock
// and has not looked for readers yet. Otherwise a peer could get the lock before the call goes on, and the call would
// fail.
func TestRWSpinLockBesideTheCloseOfTheArena(t *testing.T) {
	for _, upgrade := range []bool{false, true} {
		w := arenatest.New(t, nil)
		closer, peer := w.Join("closer"), w.Join("peer")
		l, err := prims.OpenRWSpinLock(closer, "x", nil)
		require.NoError(t, err)
		if upgrade {
			l.LockUpgradable()
		}
		var closed chan error
		t.Cleanup(crashpoint.Disarm)
		crashpoint.ArmFunc("rwspinlock.drain.claimed", 1, func() {
			closed = closing(t, closer)
			select {
			case err := <-closed:
				t.Errorf("Close returned %v while a call drained the lock", err)
				closed <- err
			case <-after(100 * time.Millisecond):
			}
		})
		if upgrade {
			err = l.UpgradeContext(context.Background())
		} else {
			err = l.LockContext(context.Background())
		}
		require.NoError(t, err)
		require.NoError(t, <-closed)
		x, err := prims.OpenRWSpinLock(peer, "x", nil)
		require.NoError(t, err)
		require.ErrorIs(t, x.LockContext(t.Context()), shmsync.ErrOwnerDead, "the closer has left the arena with the lock")
		require.NoError(t, x.Recover(func() error { return nil }))
	}
}

//go:build linux && crashpoint

package prims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// TestSynchronizedCloseWaitsForTheUnlock: a goroutine has left the function of its Update and has not unlocked
// yet. Close waits for it, however long the goroutine does not run, and whether or not the process has another
// handle.
func TestSynchronizedCloseWaitsForTheUnlock(t *testing.T) {
	for _, another := range []bool{false, true} {
		a := newArena(t, nil)
		s, err := prims.OpenSynchronized(a, "s", 1, nil)
		require.NoError(t, err)
		if another {
			_, err := prims.OpenSynchronized(a, "s", 1, nil)
			require.NoError(t, err)
		}
		closed := make(chan error, 1)
		crashpoint.ArmFunc("mutex.unlock.before_release", 1, func() {
			go func() { closed <- s.Close() }()
			select {
			case err := <-closed:
				t.Errorf("Close returned %v, and the Update has not unlocked yet", err)
				closed <- err
			case <-after(500 * time.Millisecond): // an earlier version of Close waited for 20 ms only
			}
		})
		require.NoError(t, s.Update(func(v *int) error { *v = 2; return nil }))
		require.NoError(t, <-closed)
	}
}

// TestSynchronizedCloseBesideAnUpdateOfAnotherHandle: Close does not wait for an Update that was called through
// another handle of its process.
func TestSynchronizedCloseBesideAnUpdateOfAnotherHandle(t *testing.T) {
	a := newArena(t, nil)
	s, err := prims.OpenSynchronized(a, "s", 1, nil)
	require.NoError(t, err)
	other, err := prims.OpenSynchronized(a, "s", 1, nil)
	require.NoError(t, err)
	require.NoError(t, other.Update(func(v *int) error {
		*v = 2
		return s.Close()
	}))
	require.Equal(t, 2, other.Load())
}

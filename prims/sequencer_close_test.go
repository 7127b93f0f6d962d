//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// TestSequencerCloseByTheFirstOfManyWaiters checks that Close waits for a call that wakes waiters. A waiter whose wait
// has ended may close the handle while the call still has to wake the waiters of other cells.
func TestSequencerCloseByTheFirstOfManyWaiters(t *testing.T) {
	needsCrashPoints(t)
	for _, c := range []struct {
		name string
		call func(s *prims.Sequencer)
		err  error
	}{
		{"stop", (*prims.Sequencer).Stop, shmsync.ErrCanceled},
		{"cancel", (*prims.Sequencer).CancelWaiters, shmsync.ErrCanceled},
		{"reset", func(s *prims.Sequencer) { s.ResetTo(1) }, shmsync.ErrCanceled},
		{"advance", func(s *prims.Sequencer) { s.Advance(40) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSequencer(t, nil)
			waits := make([]*prims.Pending, 16)
			for i := range waits {
				waits[i] = s.WaitAsync(uint64(25 + i))
			}
			woken, kept := 0, false
			var hook func()
			hook = func() { // called before the waiters of the next cell wake
				crashpoint.Disarm()
				if woken++; woken < len(waits) {
					crashpoint.ArmFunc("sequencer.count.before_wake", 1, hook)
					return
				}
				const first = 32 // this token belongs to cell 0
				require.ErrorIs(t, waits[first-25].Wait(), c.err)
				kept = !s.Empty(first)
			}
			crashpoint.ArmFunc("sequencer.count.before_wake", 1, hook)
			defer crashpoint.Disarm()
			c.call(s)
			require.Equal(t, len(waits), woken)
			require.True(t, kept, "Close would not wait for a call that is about to wake others")
			for _, p := range waits {
				require.ErrorIs(t, p.Wait(), c.err)
			}
			require.NoError(t, s.Close())
		})
	}
}

// TestSequencerCloseBeforeTheCountIsLookedAt: a call counts. Before it checks the cell, a waiter sees by itself
// that the counter has reached its token, and closes the handle. The call does not panic, and the waiters of
// other handles wake.
func TestSequencerCloseBeforeTheCountIsLookedAt(t *testing.T) {
	needsCrashPoints(t)
	a := newArena(t, nil)
	s, err := prims.OpenSequencer(a, "s", nil)
	require.NoError(t, err)
	other, err := prims.OpenSequencer(a, "s", nil)
	require.NoError(t, err)
	near, far := s.WaitAsync(1), other.WaitAsync(1)
	closed := false
	crashpoint.ArmFunc("sequencer.count.counted", 1, func() {
		s.Look() // the periodic check, which otherwise comes ten times a second
		require.NoError(t, near.Wait())
		require.NoError(t, s.Close())
		closed = true
		require.Positive(t, uint32(other.Cell(1).Load()), "the word has not changed, so a waiter of another process would wake only for its next check")
	})
	defer crashpoint.Disarm()
	require.NotPanics(t, func() { s.Increment() })
	require.True(t, closed)
	require.NoError(t, far.Wait())
	require.NoError(t, other.Close())
}

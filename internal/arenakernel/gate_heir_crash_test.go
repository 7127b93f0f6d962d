//go:build crashpoint && linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// twoDead makes an arena whose two participants were killed and are not reaped yet. The participant
// with the label "victim" had slot 1 and held a lock.
func twoDead(t *testing.T) *testArena {
	t.Helper()
	ta := newTestArena(t, 2)
	v, x := ta.join(t, "victim"), ta.join(t, "other")
	require.Equal(t, 1, v.self.Slot())
	v.must(t, order{Do: "lock", Text: "held"})
	for _, p := range []*remote{x, v} { // both are stopped first, so that neither reaps the other
		p.Stop(t)
	}
	for _, p := range []*remote{x, v} {
		p.Signal(t, unix.SIGKILL)
		p.WaitSignal(t, unix.SIGKILL)
	}
	return ta
}

// TestFirstRepairsWhatAStoppedHeirHasNot: a joiner is stopped while it takes over the slot of a
// dead participant. The first participant of the next epoch must repair what the dead participant
// held before it runs OnFirst, and OnFirst must get the death.
func TestFirstRepairsWhatAStoppedHeirHasNot(t *testing.T) {
	for _, point := range []string{"arena.inherit.taken", "arena.inherit.recorded", "arena.inherit.repaired", "arena.inherit.reclaimed"} {
		t.Run(point, func(t *testing.T) {
			ta := twoDead(t)
			h := ta.start(t)
			h.must(t, order{Do: "arm to stop", Text: point})
			ta.opts.Label = "heir"
			h.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
			h.AwaitStop(t)
			opts, first := ta.opts, 0
			opts.OnFirst = func(a *Arena, e Epoch) error {
				first++
				l, err := openTestLock(a, "held")
				require.NoError(t, err)
				require.True(t, l.tryLock(), "the lock is held by %v", ParticipantID(l.owner.Load()))
				require.False(t, e.Clean)
				require.Equal(t, []string{"other", "victim"}, labels(e.Dead))
				return nil
			}
			a, err := Open(ta.name, &opts)
			require.NoError(t, err)
			require.Equal(t, 1, first)
			h.Cont(t)
			var ans answer
			h.Recv(t, &ans)
			require.Empty(t, ans.Err)
			h.close(t)
			require.NoError(t, a.Close())
			// The next epoch must not get these deaths again.
			opts.OnFirst = func(_ *Arena, e Epoch) error {
				require.True(t, e.Clean)
				require.Empty(t, e.Dead)
				return nil
			}
			a, err = Open(ta.name, &opts)
			require.NoError(t, err)
			require.NoError(t, a.Check())
			require.NoError(t, a.Close())
		})
	}
}

//go:build crashpoint && linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestStopWithTheByteLockOfADeadSlot: a joiner is stopped after it has locked the byte of a dead
// participant's slot, and before it has taken the slot. The first participant of an epoch must not
// conclude from this lock that the dead process may still write to the arena.
func TestStopWithTheByteLockOfADeadSlot(t *testing.T) {
	for _, point := range []string{"arena.enter.locked", "arena.inherit.reaper"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 2)
			opts := ta.opts
			ta.opts.KernelIO = KernelIOAsynchronous // so that only the byte lock can show that a process is gone
			v, x := ta.join(t, "victim"), ta.join(t, "other")
			ta.opts = opts
			require.Equal(t, 1, v.self.Slot())
			v.must(t, order{Do: "lock", Text: "held"})
			for _, p := range []*remote{x, v} { // both are stopped first, so that neither reaps the other
				p.Stop(t)
			}
			for _, p := range []*remote{x, v} {
				p.Signal(t, unix.SIGKILL)
				p.WaitSignal(t, unix.SIGKILL)
			}
			h := ta.start(t)
			h.must(t, order{Do: "arm to stop", Text: point})
			opts.Label = "heir"
			h.Send(order{Do: "begin", Arena: ta.name, Opts: &opts})
			h.AwaitStop(t)
			a := beginWith(t, ta, false, "other", "victim")
			h.Cont(t)
			var ans answer
			h.Recv(t, &ans)
			require.Empty(t, ans.Err)
			h.close(t)
			require.NoError(t, a.Check())
			require.NoError(t, a.Close())
			require.NoError(t, beginWith(t, ta, true).Close())
		})
	}
}

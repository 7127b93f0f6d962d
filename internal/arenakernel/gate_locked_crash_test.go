//go:build crashpoint && linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A joiner is stopped when it has the byte lock of a dead participant's slot, and has not taken the slot. The first of
// an epoch does not take this for a sign that the dead process still writes.
func TestStopWithTheByteLockOfADeadSlot(t *testing.T) {
	for _, point := range []string{"arena.enter.locked", "arena.inherit.reaper"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 2)
			opts := ta.opts
			ta.opts.KernelIO = KernelIOAsynchronous // so that only the byte lock proves that a process is gone
			v, x := ta.join(t, "victim"), ta.join(t, "other")
			ta.opts = opts
			require.Equal(t, 1, v.self.Slot())
			v.must(t, order{Do: "lock", Text: "held"})
			for _, p := range []*remote{x, v} { // the other participant reaps nobody
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

//go:build crashpoint && linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDeathOfAFirstTellsEachDeathToOneEpoch: a first participant dies while it opens an epoch. If
// it dies before the step that opens the epoch, the next first participant gets the same deaths. If
// it dies after that step, the deaths count as reported, and the next first participant does not
// get them.
func TestDeathOfAFirstTellsEachDeathToOneEpoch(t *testing.T) {
	for point, dead := range map[string][]string{
		"arena.gate.begun":  {"victim", "first"},
		"arena.gate.opened": {"first"},
	} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			for range 2 { // once with an odd and once with an even epoch number
				d := ta.join(t, "victim")
				d.Signal(t, unix.SIGKILL)
				d.WaitSignal(t, unix.SIGKILL)
				v := ta.start(t)
				v.must(t, order{Do: "arm", Text: point})
				opts := ta.opts
				opts.Label = "first"
				v.die(order{Do: "begin", Arena: ta.name, Opts: &opts})
				v.WaitSignal(t, unix.SIGKILL)
				require.NoError(t, beginWith(t, ta, false, dead...).Close())
				require.NoError(t, beginWith(t, ta, true).Close())
				if point == "arena.gate.opened" {
					require.NoError(t, beginWith(t, ta, true).Close())
				}
			}
		})
	}
}

//go:build crashpoint && linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDeathOfAFirstTellsEachDeathToOneEpoch: once the step that opens an epoch is done, its deaths
// count as reported. If the first participant dies before that step, the next first participant
// gets these deaths, too. If it dies later, the next one does not get them.
func TestDeathOfAFirstTellsEachDeathToOneEpoch(t *testing.T) {
	for point, dead := range map[string][]string{
		"arena.gate.begun":  {"victim", "first"},
		"arena.gate.opened": {"first"},
	} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			for range 2 { // an epoch with an odd and one with an even number
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

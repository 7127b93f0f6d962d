package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectSignals(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	v, err := viewSignals(a, o)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.State, i.Spin = fmt.Sprint(v.health()), spinText(v.head.spin.Load())
	i.word("summary", v.head.summary.Load(), "signals with work, a bit each")
	i.word("permits", v.head.permits.Load(), "%d", v.head.permits.Load())
	i.wakeWord("wake", v.head.wake.Load())
	for q := range v.gates {
		g := signalGateWord(v.gates[q].word.Load())
		if g.executing() && g.valid() && len(i.Holds) < inspectLeases {
			key := uint64(q)
			i.hold(arenakernel.Hold{Owner: g.participant(), Mode: arenakernel.HoldExecutor, Key: &key})
		}
	}
	i.waits(func(*arenakernel.Wait) bool { return true }, "permit", nil)
	return i.Inspection
}

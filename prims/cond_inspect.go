package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectCond(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < condBytes(a) {
		return unreadable(a, o, nil)
	}
	k, err := buildCond(a, o, true)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	st := k.state()
	i.State = fmt.Sprintf("%d waiting, %d woken", st.Waiting, st.Woken)
	i.Counts, i.Spin = k.counts.tell(), spinText(k.words.spin.Load())
	i.waits(inQueue, "signal", nil)
	return i.Inspection
}

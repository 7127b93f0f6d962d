package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectCond(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < uint64(condBytes) {
		return unreadable(a, o, nil)
	}
	k := buildCond(a, o, true)
	i := inspect(a, o)
	st := k.state()
	i.State = fmt.Sprintf("%d waiting, %d woken", st.Waiting, st.Woken)
	i.monitor(k.words.mon.places())
	i.waits(inQueue, "signal", nil)
	return i.Inspection
}

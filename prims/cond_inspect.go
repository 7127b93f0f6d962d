package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/arena"
)

func inspectCond(a *arena.Arena, o arena.Object) arena.Inspection {
	if o.Size < uint64(condBytes) {
		return unreadable(a, o, nil)
	}
	k := buildCond(a, o, true)
	i := inspect(a, o)
	st := k.state()
	i.State = fmt.Sprintf("%d waiting, %d woken", st.Waiting, st.Woken)
	i.monitor(&k.words.mon)
	i.waits(inQueue, "signal", nil)
	return i.Inspection
}

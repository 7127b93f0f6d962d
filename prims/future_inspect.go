package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectFuture(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < uint64(futureBytes) {
		return unreadable(a, o, nil)
	}
	w := arenakernel.At[futureWords](a, o.Body)
	s := futureState(w.state.Load())
	i := inspect(a, o)
	i.State = s.String()
	i.word("state", uint64(s), "%v", s)
	var on []int
	switch {
	case s.abandoned():
		i.lost(shmsync.ErrOwnerDead, s.producer())
	case s.claimed():
		on = i.hold(arenakernel.Hold{Owner: s.producer(), Mode: arenakernel.HoldProducer})
	}
	i.monitor(&w.mon)
	i.waits(inQueue, "result", on)
	return i.Inspection
}

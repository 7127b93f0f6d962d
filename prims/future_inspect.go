package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectFuture(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < futureBytes {
		return unreadable(a, o, nil)
	}
	f := buildFuture(a, o, true)
	i := inspect(a, o)
	s, text := f.text()
	i.State = text
	i.eventcount(&f.eventcount)
	i.word("state", uint64(s), "round %d, %v", s.round(), s)
	var on []int
	switch {
	case s.abandoned():
		i.lost(shmsync.ErrOwnerDead, s.producer())
	case s.claimed():
		on = i.hold(arenakernel.Hold{Owner: s.producer(), Mode: arenakernel.HoldProducer})
	}
	i.waits(func(*arenakernel.Wait) bool { return true }, "result", on)
	return i.Inspection
}

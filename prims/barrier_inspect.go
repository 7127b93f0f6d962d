package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectBarrier(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < barrierBytes(a) {
		return unreadable(a, o, nil)
	}
	x := buildBarrier(a, o, nil, true)
	s, shares, err := x.seen()
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.State = s.String()
	if s.isBroken() {
		i.lost(shmsync.ErrOwnerDead, s.broken.dead())
	}
	i.eventcount(&x.eventcount)
	c := x.load()
	i.word("commit", uint64(c), "%v", c)
	on := i.hold(arenakernel.Hold{Owner: s.completer, Mode: arenakernel.HoldRunner, Note: "the completion"})
	for k := range shares {
		if parties, left := s.in(&shares[k]); parties > 0 && left > 0 && a.Current(shares[k].name) {
			on = append(on, i.hold(arenakernel.Hold{Owner: shares[k].name, Mode: arenakernel.HoldParty, Count: left})...)
		}
	}
	i.waits(func(w *arenakernel.Wait) bool { return true }, "phase", on)
	for k := range i.Waits {
		i.Waits[k].Want = &s.phase
	}
	return i.Inspection
}

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

func inspectBarrier(a *arena.Arena, o arena.Object) arena.Inspection {
	if o.Size < barrierBytes(a.MaxParticipants()) {
		return unreadable(a, o, nil)
	}
	x := buildBarrier(a, o, nil, true)
	w := x.words
	i := inspect(a, o)
	phase := w.phase.Load()
	i.State = fmt.Sprintf("phase %d, %d of %d to arrive", phase, w.pending.Load(), w.expected.Load())
	if lost := w.lost.Load(); lost > 0 {
		i.State += fmt.Sprintf(", %d parties lost", lost)
	}
	if x.isBroken() {
		i.lost(shmsync.ErrOwnerDead, arena.ParticipantID(w.dead.Load()&arena.ParticipantIDMask))
	}
	i.monitor(&w.mon)
	on := i.hold(arena.Hold{Owner: arena.ParticipantID(w.completer.Load() & arena.ParticipantIDMask), Mode: arena.HoldRunner, Note: "the completion"})
	for _, h := range x.shares {
		name := arena.ParticipantID(h.name.Load() & arena.ParticipantIDMask)
		if parties, left := h.in(phase); parties > 0 && left > 0 && a.Current(name) {
			on = append(on, i.hold(arena.Hold{Owner: name, Mode: arena.HoldParty, Count: left})...)
		}
	}
	i.waitsFor("phase", on)
	return i.Inspection
}

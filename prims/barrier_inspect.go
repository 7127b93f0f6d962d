package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectBarrier(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
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
		i.lost(shmsync.ErrOwnerDead, arenakernel.ParticipantID(w.dead.Load()&arenakernel.ParticipantIDMask))
	}
	i.monitor(&w.mon)
	on := i.hold(arenakernel.Hold{Owner: arenakernel.ParticipantID(w.completer.Load() & arenakernel.ParticipantIDMask), Mode: arenakernel.HoldRunner, Note: "the completion"})
	for _, h := range x.shares {
		name := arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask)
		if parties, left := h.in(phase); parties > 0 && left > 0 && a.Current(name) {
			on = append(on, i.hold(arenakernel.Hold{Owner: name, Mode: arenakernel.HoldParty, Count: left})...)
		}
	}
	i.waitsFor("phase", on)
	return i.Inspection
}

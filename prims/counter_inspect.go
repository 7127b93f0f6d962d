package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectCounter(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < counterBytes(a.MaxParticipants()) {
		return unreadable(a, o, nil)
	}
	t := buildCounter(a, o, "", true)
	i := inspect(a, o)
	i.State = fmt.Sprintf("counter %d", t.count())
	if owed := t.words.owed.Load(); owed > 0 {
		i.State += fmt.Sprintf(", %d owed by the dead", owed)
		i.lost(shmsync.ErrOwnerDead, arenakernel.ParticipantID(t.words.dead.Load()&arenakernel.ParticipantIDMask))
	}
	i.monitor(&t.words.mon)
	var on []int
	for _, h := range t.shares {
		name := arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask)
		if n := t.has(h); n > 0 && a.Current(name) {
			on = append(on, i.hold(arenakernel.Hold{Owner: name, Mode: arenakernel.HoldOwes, Count: n})...)
		}
	}
	i.waits(inQueue, "zero", on)
	return i.Inspection
}

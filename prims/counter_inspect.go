package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

func inspectCounter(a *arena.Arena, o arena.Object) arena.Inspection {
	if o.Size < counterBytes(a.MaxParticipants()) {
		return unreadable(a, o, nil)
	}
	t := buildCounter(a, o, "", true)
	i := inspect(a, o)
	i.State = fmt.Sprintf("counter %d", t.count())
	if owed := t.words.owed.Load(); owed > 0 {
		i.State += fmt.Sprintf(", %d owed by the dead", owed)
		i.lost(shmsync.ErrOwnerDead, arena.ParticipantID(t.words.dead.Load()&arena.ParticipantIDMask))
	}
	i.monitor(&t.words.mon)
	var on []int
	for _, h := range t.shares {
		name := arena.ParticipantID(h.name.Load() & arena.ParticipantIDMask)
		if n := t.has(h); n > 0 && a.Current(name) {
			on = append(on, i.hold(arena.Hold{Owner: name, Mode: arena.HoldOwes, Count: n})...)
		}
	}
	i.waits(inQueue, "zero", on)
	return i.Inspection
}

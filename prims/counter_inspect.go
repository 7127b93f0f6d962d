package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectCounter(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < counterBytes(a) {
		return unreadable(a, o, nil)
	}
	t := bareCounter(a, o, "")
	i := inspect(a, o)
	v := t.view()
	i.State = fmt.Sprintf("counter %d", v.count)
	if v.owed > 0 {
		i.State += fmt.Sprintf(", %d owed by the dead", v.owed)
		i.lost(shmsync.ErrOwnerDead, v.dead)
	}
	i.Counts, i.Spin = t.counts.tell(), spinText(t.words.spin.Load())
	i.word("commit", uint64(v.word), "%v", v.word)
	var on []int
	owes := func(n arenakernel.ParticipantID, count uint64) {
		if count > 0 && a.Current(n) {
			on = append(on, i.hold(arenakernel.Hold{Owner: n, Mode: arenakernel.HoldOwes, Count: count})...)
		}
	}
	switch c := v.word; {
	case c.logged():
		for _, s := range t.slots.load().of {
			if s != nil {
				owes(s.holder(), min(t.has(s), v.count))
			}
		}
	case !c.lost():
		owes(c.owner(), c.count())
	}
	i.waits(func(*arenakernel.Wait) bool { return true }, "zero", on)
	return i.Inspection
}

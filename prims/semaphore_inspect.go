package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectSemaphore(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < semaphoreBytes(a) {
		return unreadable(a, o, nil)
	}
	s, err := buildSemaphore(a, o, true)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.State = fmt.Sprintf("%d of %d permits free", poolWord(s.words.free.Load()).permits()+s.spares(), s.size)
	if s.moves {
		i.State += ", transferable"
	}
	i.monitor(s.mon.words)
	var on []int
	for _, h := range s.shares().all {
		name, q := arenakernel.ParticipantID(h.name.Load()&arenakernel.ParticipantIDMask), fastWord(h.fast.Load())
		if s.moves {
			if n := s.unaccepted(h.semaphoreShare); n > 0 && a.Current(name) {
				i.hold(arenakernel.Hold{Owner: name, Mode: arenakernel.HoldReserved, Count: n})
			}
			continue
		}
		if q != 0 {
			i.word("share of "+name.String(), uint64(q), "%v", q)
		}
		if n := h.permits.Load() + q.used(); n > 0 && a.Current(name) {
			on = append(on, i.hold(arenakernel.Hold{Owner: name, Mode: arenakernel.HoldPermits, Count: n})...)
		}
	}
	i.dateByFirst(on)
	i.waitsFor("permits", on)
	i.enough("permits")
	return i.Inspection
}

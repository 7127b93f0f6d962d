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
	i.State = fmt.Sprintf("%d of %d permits free", s.seenFree(), s.size)
	if s.moves {
		i.State += ", transferable"
	}
	i.Counts, i.Spin = s.counts.tell(), spinText(s.words.spin.Load())
	var on []int
	for _, h := range s.shares().all {
		name, q := arenakernel.ParticipantID(valueIn(&h.name))&arenakernel.ParticipantIDMask, fastWord(h.fast.Load())
		if s.moves {
			if n := s.unaccepted(&recordedChange{}, h.semaphoreShare); n > 0 && a.Current(name) {
				i.hold(arenakernel.Hold{Owner: name, Mode: arenakernel.HoldReserved, Count: n})
			}
			continue
		}
		if valueIn(&h.fast) != 0 {
			state := "closed"
			if q.open() {
				state = "open"
			}
			i.word("share of "+name.String(), uint64(q), "%s, %d used, %d spare", state, h.ownIn(name), q.spare())
		}
		if n := h.ownIn(name); n > 0 && a.Current(name) {
			on = append(on, i.hold(arenakernel.Hold{Owner: name, Mode: arenakernel.HoldPermits, Count: n})...)
		}
	}
	i.dateByStamp(on)
	i.waitsFor("permits", on)
	i.enough("permits")
	return i.Inspection
}

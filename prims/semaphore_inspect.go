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

// dateByStamp adds a date to each of the given holds that has none. It is the date of the first wait in the queue
// of the object, because the holds had begun by then; see dateBy.
func (i *inspection) dateByStamp(holds []int) {
	for k := range i.Waits {
		w := &i.Waits[k]
		if !inQueue(w) {
			continue
		}
		n, err := i.a.NodeAt(w.Node)
		if err != nil {
			return
		}
		s, stamp := n.Load(), n.Stamp().Load()
		same := n.Object() == i.o.Offset && arenakernel.RecordedNumber(stamp) == w.Stamp && n.Owner() == w.Owner && n.Wanted().Load() == *w.Want
		if !same || !queued(s) || !queuedValue(valueIn(n.Next())) || n.Load() != s {
			continue // the wait has ended or is about to end, so its stamp may not be a date
		}
		since := firstSince(uint32(stamp), i.a.Now())
		for _, h := range holds {
			if x := &i.Holds[h]; since != 0 && x.Since == 0 {
				x.Since, x.AtLeast = since, true
			}
		}
		return
	}
}

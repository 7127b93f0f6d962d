package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// inspectLeases bounds how many leases of a queue are listed one by one.
const inspectLeases = 1000

func inspectQueue(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	x, err := buildQueue(a, o, true)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	var counts [queueKinds + 1]int
	x.each(func(p uint32, s *queueSlot, st queueState) {
		if st.kind() == queueFull && !x.published(p, st) {
			st = st.with(queueClaimed, st.participant())
		}
		counts[min(st.kind(), queueKinds)]++
		if st.kind() < queueKinds && st.participant() != 0 && st.kind() != queueFull && len(i.Holds) < inspectLeases {
			h := arenakernel.Hold{Owner: st.participant(), Mode: arenakernel.HoldLease}
			switch st.kind() {
			case queueTaken:
				h.Note = "in a Get"
			case queueClaimed:
				h.Note = "in a Put"
			default:
				w := queueLeaseWord(s.lease.Load())
				h.Count = uint64(w.times())
				h.Since = s.leaseSince(st, w, a.Now())
				h.AtLeast = h.Since != 0
			}
			if st.kind() != queueClaimed {
				key := x.number(st)
				h.Key = &key
			}
			i.hold(h)
		}
	})
	i.State = fmt.Sprintf("%d of %d full, %d leased", counts[queueFull]+counts[queueReturned], x.capacity, counts[queueLeased])
	if n := counts[queueTaken] + counts[queueClaimed]; n > 0 {
		i.State += fmt.Sprintf(", %d in a call", n)
	}
	if x.stopped() {
		i.State += ", shut down"
	}
	i.Counts, i.Spin = x.counts.tell(), spinText(x.words.spin.Load())
	for _, side := range []struct {
		name, what string
		at         arenakernel.Offset
		words      *queueSideWords
	}{{"items", "item", queueItemsOff, &x.words.items}, {"room", "room", queueRoomOff, &x.words.room}} {
		if w := side.words.wake.Load(); w != 0 {
			i.wakeWord(side.name, w)
		}
		i.waits(waitsOn(side.at, side.at+queuePollerOff), side.what, nil)
	}
	return i.Inspection
}

// hideQueue calls the function hide for the memory with the items, so that a dump does not show them.
func hideQueue(a *arenakernel.Arena, o arenakernel.Object, hide func(from arenakernel.Offset, n uint64)) {
	x, err := buildQueue(a, o, true)
	if err != nil {
		hide(0, o.Size)
		return
	}
	for p := uint64(0); p < uint64(x.slots); p++ {
		hide(arenakernel.Offset(x.first+p*x.stride+queueSlotBytes), x.item)
	}
}

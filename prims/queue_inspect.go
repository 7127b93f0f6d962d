package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// inspectLeases bounds how many leases of a queue are told one by one.
const inspectLeases = 1000

func inspectQueue(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	x, err := buildQueue(a, o, true)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	var counts [queueKinds + 1]int
	for p := uint32(1); p <= x.slots; p++ {
		st := queueState(x.slot(p).state.Load())
		counts[min(st.kind(), queueKinds)]++
		if st.out() && st.valid() && len(i.Holds) < inspectLeases {
			key := x.number(st)
			h := arenakernel.Hold{Owner: st.participant(), Mode: arenakernel.HoldLease, Count: x.slot(p).times.Load(), Key: &key}
			switch st.kind() {
			case queueTaken:
				h.Note = "on its way to a Get"
			case queueGiven:
				h.Note = "on its way to a waiting Get"
			case queueHanding:
				h.Note = "being given to a waiting Get"
			}
			i.hold(h)
		}
	}
	i.State = fmt.Sprintf("%d of %d full, %d leased", x.length(), x.capacity, counts[queueLeased])
	if n := counts[queueTaken] + counts[queueGiven] + counts[queueHanding]; n > 0 {
		i.State += fmt.Sprintf(", %d on their way", n)
	}
	if x.stopped() {
		i.State += ", shut down"
	}
	i.monitor(&x.words.mon)
	for class, what := range []string{queuePut: "room", queueGet: "item", queueLease: "lease"} {
		i.waits(func(w *arenakernel.Wait) bool { return inQueue(w) && int(w.Class) == class }, what, nil)
	}
	return i.Inspection
}

// hideQueue hides the items.
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

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
	for p := uint32(1); p <= x.capacity; p++ {
		st := queueState(x.slot(p).state.Load())
		counts[min(st.kind(), queueKinds)]++
		if st.out() && st.valid() && len(i.Holds) < inspectLeases {
			key := x.slot(p).seq.Load()
			h := arenakernel.Hold{Owner: st.participant(), Mode: arenakernel.HoldLease, Count: uint64(st.times()), Key: &key}
			if st.kind() == queueGiven {
				h.Note = "on its way to a waiting Get"
			}
			i.hold(h)
		}
	}
	i.State = fmt.Sprintf("%d of %d full, %d leased", counts[queueFull], x.capacity, counts[queueLeased])
	if counts[queueGiven] > 0 {
		i.State += fmt.Sprintf(", %d on their way", counts[queueGiven])
	}
	if x.words.stopped.Load() != 0 {
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
	for p := uint64(0); p < uint64(x.capacity); p++ {
		hide(arenakernel.Offset(queueHeadBytes+p*x.stride+queueSlotBytes), x.item)
	}
}

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// inspectWaitable describes a Waitable for tools. It has no rules, so it cannot find out which holds keep a wait
// from going on. Besides, a wait may end by an Update, too.
func inspectWaitable(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, err := arenakernel.TryAt[waitableWords](a, o.Body)
	if err != nil || o.Size < waitableShapeOf(0, 0).size {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.State = fmt.Sprintf("%d changes", w.current.Load())
	if w.stopped.Load() != 0 {
		i.State += ", stopped"
	}
	if by := w.lostBy.Load(); by != 0 {
		i.State += ", not recoverable"
		i.lost(shmsync.ErrNotRecoverable, arenakernel.ParticipantID(by&arenakernel.ParticipantIDMask))
	}
	i.monitor(w.mon.places())
	for off := waitableHoldsAt(o, w); off < arenakernel.Offset(o.Size); off += waitableHoldSize {
		h, err := arenakernel.TryAt[waitableHold](a, o.Body+off)
		if err != nil {
			break
		}
		name, n := arenakernel.ParticipantID(h.name.Load()&arenakernel.ParticipantIDMask), h.count.Load()
		if !a.Current(name) {
			continue
		}
		claimed, u := h.extra.Load(), h.unaccepted()
		if u > 0 {
			i.hold(arenakernel.Hold{Owner: name, Mode: arenakernel.HoldReserved, Count: u, Key: &claimed})
		}
		if n > u {
			i.hold(arenakernel.Hold{Owner: name, Mode: arenakernel.HoldClaim, Count: n - u, Key: &claimed})
		}
	}
	i.waits(inQueue, "claim", nil)
	return i.Inspection
}

// waitableHoldsAt returns where the array of waitableHold begins. If the array is empty, waitableHoldsAt returns
// the end of the body.
func waitableHoldsAt(o arenakernel.Object, w *waitableWords) arenakernel.Offset {
	n, most := w.holds.Load(), (o.Size-uint64(waitableShapeOf(0, 0).size))/waitableHoldSize
	return arenakernel.Offset(o.Size - waitableHoldSize*min(n, most))
}

// hideWaitable hides the state from the output of tools. It also hides the text of a panic, which may contain
// parts of the state.
func hideWaitable(a *arenakernel.Arena, o arenakernel.Object, hide func(from arenakernel.Offset, n uint64)) {
	end := o.Size
	state := waitableShapeOf(0, 0).copies[0]
	if w, err := arenakernel.TryAt[waitableWords](a, o.Body); err == nil && end > uint64(state) {
		end = uint64(waitableHoldsAt(o, w))
	}
	hide(state, max(end, uint64(state))-uint64(state))
	hide(waitableLostTextOff, uint64(len(waitableWords{}.lostText)))
}

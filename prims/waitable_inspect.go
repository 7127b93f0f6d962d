package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// inspectWaitable describes a Waitable for tools. A tool does not have the rules of the program, so inspectWaitable
// cannot find out which holds keep a wait from going on, or whether the wait needs an Update instead.
func inspectWaitable(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	x, ok := bareWaitable(a, o)
	if !ok {
		return unreadable(a, o, nil)
	}
	i := inspect(a, o)
	i.State = fmt.Sprintf("%d changes", x.load().version())
	if valueIn(&x.words.stopped) != 0 {
		i.State += ", stopped"
	}
	if by := x.lostBy(); by != 0 {
		i.State += ", not recoverable"
		i.lost(shmsync.ErrNotRecoverable, by)
	}
	i.Counts, i.Spin = x.counts.tell(), spinText(x.words.spin.Load())
	for h := range x.everyHold() {
		name, n := h.participant(), uint64(h.held())
		if !a.Current(name) {
			continue
		}
		claimed, u := h.extra(), uint64(h.unaccepted())
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

// hideWaitable hides the image of the state in the body from the output of tools.
func hideWaitable(a *arenakernel.Arena, o arenakernel.Object, hide func(from arenakernel.Offset, n uint64)) {
	if shape, ok := bareShape(a, o); ok {
		hide(shape.image, uint64(shape.each))
		return
	}
	hide(0, o.Size)
}

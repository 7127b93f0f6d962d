package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectSequencer(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, err := arenakernel.TryAt[sequenceWords](a, o.Body)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.State = fmt.Sprintf("counter %d", w.value.Load())
	i.sequence(w)
	i.waitsFor("token", nil)
	return i.Inspection
}

// sequence adds the words of a sequence.
func (i *inspection) sequence(w *sequenceWords) {
	if w.stopped.Load() != 0 {
		i.State += ", stopped"
	}
	i.word("value", w.value.Load(), "%d", w.value.Load())
	if n := w.next.Load(); n != 0 {
		i.word("next", n, "the smallest token waited for is %d, or more", ^n)
	}
	i.monitor(w.mon.places())
}

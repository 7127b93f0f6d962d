package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectSequencer(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, err := sequencerAt(a, o)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	v, t := w.value.Load(), sequencerTurns(w.turns.Load())
	i.State = fmt.Sprintf("counter %d", v)
	if t.stopped() {
		i.State += ", stopped"
	}
	i.Counts, i.Spin = w.counts.tell(), spinText(w.spin.Load())
	i.word("value", v, "%d", v)
	if t != 0 {
		i.word("turns", uint64(t), "waits were ended %d times", t/turnsOne)
	}
	if ahead, announced := w.next(v); announced {
		i.State += fmt.Sprintf(", waited for %d or more", v+ahead)
	}
	for k := range w.cells {
		s := tokenCellState(w.cells[k].state.Load())
		if !s.announced() {
			continue
		}
		i.word(fmt.Sprintf("cell %d", k), uint64(s), "%v", s)
		if !s.due(v) {
			at := w.cell(k).stateOff
			i.waits(waitsOn(at, at+tokenCellPollerOff), fmt.Sprintf("token %d or more", v+uint64(s.ahead(v))), nil)
		}
	}
	i.waits(func(*arenakernel.Wait) bool { return true }, "token", nil)
	return i.Inspection
}

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectEvent(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	mode, err := eventModeOf(a, o)
	if err != nil {
		return unreadable(a, o, err)
	}
	e := buildEvent(a, o, mode, true)
	i := inspect(a, o)
	st := e.State()
	i.State = "not set"
	if st.Set {
		i.State = "set"
	}
	if e.auto == nil {
		i.sequence(e.manual.words)
	} else {
		i.word("value", e.auto.state.Load(), "%v", e.auto.load())
		i.monitor(&e.auto.words.sequence.mon)
	}
	i.waits(inQueue, "set", nil)
	i.State += fmt.Sprintf(", %v", e.mode)
	return i.Inspection
}

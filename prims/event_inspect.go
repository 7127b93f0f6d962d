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
	i := inspect(a, o)
	what, set := "set", false
	if mode == eventAuto {
		x, err := buildAutoEvent(a, o, true)
		if err != nil {
			return unreadable(a, o, err)
		}
		s := x.load()
		set, _ = x.state()
		i.eventcount(&x.eventcount)
		i.word("state", uint64(s), "%v", s)
		i.waits(func(*arenakernel.Wait) bool { return true }, what, nil)
	} else {
		m := buildManualEvent(a, o, true)
		s := m.load()
		if set = s.set(); set {
			what = "reset"
		}
		i.eventcount(&m.eventcount)
		i.word("state", uint64(s), "%v", s)
		i.waits(func(*arenakernel.Wait) bool { return true }, what, nil)
	}
	i.State = fmt.Sprintf("not set, %v", mode)
	if set {
		i.State = fmt.Sprintf("set, %v", mode)
	}
	return i.Inspection
}

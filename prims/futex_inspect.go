package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

func inspectFutex(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, err := arenakernel.TryAt[futexWords](a, o.Body)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	s := futexState(w.state.Load())
	i.State, i.Spin = s.String(), spinText(w.spin.Load())
	i.word("state", uint64(s), "%v", s)
	i.waits(func(*arenakernel.Wait) bool { return true }, "post", nil)
	return i.Inspection
}

package prims

import "github.com/shmsync/shmsync/arena"

func inspectFutex(a *arena.Arena, o arena.Object) arena.Inspection {
	w, err := arena.TryAt[futexWords](a, o.Body)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	s := futexState(w.state.Load())
	i.State, i.Spin = s.String(), spinText(w.spin.Load())
	i.word("state", uint64(s), "%v", s)
	i.waits(func(*arena.Wait) bool { return true }, "post", nil)
	return i.Inspection
}

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/arena"
)

// inspectWaitable tells no holds: where they are depends on the user's type.
func inspectWaitable(a *arena.Arena, o arena.Object) arena.Inspection {
	w, err := arena.TryAt[waitableWords](a, o.Body)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.State = fmt.Sprintf("%d changes", w.current.Load())
	if w.stopped.Load() != 0 {
		i.State += ", stopped"
	}
	i.monitor(&w.mon)
	i.waits(inQueue, "claim", nil)
	return i.Inspection
}

// hideWaitable hides the state, and the holds behind it.
func hideWaitable(_ *arena.Arena, o arena.Object, hide func(from arena.Offset, n uint64)) {
	hide(waitableShapeOf(0, 0).copies[0], o.Size)
}

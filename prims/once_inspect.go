package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

func inspectOnce(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < onceBytes {
		return unreadable(a, o, nil)
	}
	x := buildOnce(a, o, true)
	i := inspect(a, o)
	w := x.load()
	runner := w.runner()
	switch {
	case w.done():
		i.State, runner = "done", 0
	case runner != 0:
		i.State = "run by " + runner.String()
	default:
		i.State = "not done"
	}
	i.Counts, i.Spin = x.counts.tell(), spinText(x.words.spin.Load())
	i.word("state", uint64(w), "%v", w)
	on := i.hold(arenakernel.Hold{Owner: runner, Mode: arenakernel.HoldRunner})
	i.waits(func(*arenakernel.Wait) bool { return true }, "done", on)
	return i.Inspection
}

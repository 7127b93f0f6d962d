package prims

import "github.com/shmsync/shmsync/arena"

func inspectOnce(a *arena.Arena, o arena.Object) arena.Inspection {
	if o.Size < onceBytes {
		return unreadable(a, o, nil)
	}
	x := buildOnce(a, o, true)
	i := inspect(a, o)
	runner := arena.ParticipantID(x.words.runner.Load() & arena.ParticipantIDMask)
	switch {
	case x.done.Load() != 0:
		i.State, runner = "done", 0
	case runner != 0:
		i.State = "run by " + runner.String()
	default:
		i.State = "not done"
	}
	i.monitor(&x.words.mon)
	on := i.hold(arena.Hold{Owner: runner, Mode: arena.HoldRunner})
	i.waits(inQueue, "done", on)
	return i.Inspection
}

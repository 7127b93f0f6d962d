package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

func inspectOnce(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < onceBytes {
		return unreadable(a, o, nil)
	}
	x := buildOnce(a, o, true)
	i := inspect(a, o)
	runner := arenakernel.ParticipantID(x.words.runner.Load() & arenakernel.ParticipantIDMask)
	switch {
	case x.done.Load() != 0:
		i.State, runner = "done", 0
	case runner != 0:
		i.State = "run by " + runner.String()
	default:
		i.State = "not done"
	}
	i.monitor(&x.words.mon)
	on := i.hold(arenakernel.Hold{Owner: runner, Mode: arenakernel.HoldRunner})
	i.waits(inQueue, "done", on)
	return i.Inspection
}

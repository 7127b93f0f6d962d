package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{Kind: eventKind, Version: eventVersion, Wake: wakeEvent, Inspect: inspectEvent})
}

// wakeEvent wakes the waiters that a dead process was about to wake.
func wakeEvent(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	switch mode, err := eventModeOf(a, o); {
	case err != nil:
	case mode == eventAuto:
		if x, err := buildAutoEvent(a, o, true); err == nil {
			x.wakeDead()
		}
	default:
		buildManualEvent(a, o, true).wakeDead(owed)
	}
}

package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: eventKind, Version: eventVersion, Repair: repairEvent, Wake: wakeEvent, Check: checkEvent, Inspect: inspectEvent,
	})
}

// repairEvent has nothing to repair in an Event that is reset by hand.
func repairEvent(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if mode, err := eventModeOf(a, o); err == nil && mode == eventAuto {
		repairMonitor(buildAutoEvent(a, o, true).mon, dead)
	}
}

// wakeEvent makes up for a wake that a death swallowed.
func wakeEvent(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	switch mode, err := eventModeOf(a, o); {
	case err != nil:
	case mode == eventAuto:
		wakeQueue(a, o, owed)
	default:
		buildManualEvent(a, o, true).wakeDead(owed)
	}
}

func checkEvent(a *arenakernel.Arena, o arenakernel.Object) error {
	mode, err := eventModeOf(a, o)
	if err != nil || mode != eventAuto {
		return err
	}
	return checkMutexWords(o, buildAutoEvent(a, o, true).mon.words.queueLock)
}

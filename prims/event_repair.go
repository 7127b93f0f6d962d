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
		if x := eventToRepair(a, o); x != nil {
			repairMonitor(x.mon, dead)
		}
	}
}

// eventToRepair makes the handle of a reaper on an auto-reset Event, or returns nil if there is nothing to
// repair. Without a record the dead participant has not used the Event; see semaphoreToRepair.
func eventToRepair(a *arenakernel.Arena, o arenakernel.Object) *autoEvent {
	x, err := buildAutoEvent(a, o, true)
	if err != nil || x.baseOff == 0 {
		return nil
	}
	return x
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
	x, err := buildAutoEvent(a, o, true)
	if err != nil {
		return err
	}
	return checkMutexWords(o, x.mon.words.queueLock)
}

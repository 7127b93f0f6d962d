package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: eventKind, Version: eventVersion, Repair: repairEvent, Wake: wakeQueue, Check: checkEvent, Inspect: inspectEvent,
	})
}

func repairEvent(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if mode, err := eventModeOf(a, o); err == nil {
		repairMonitor(buildEvent(a, o, mode, true).mon, dead)
	}
}

func checkEvent(a *arenakernel.Arena, o arenakernel.Object) error {
	mode, err := eventModeOf(a, o)
	if err != nil {
		return err
	}
	e := buildEvent(a, o, mode, true)
	if e.auto == nil {
		return checkSequence(e.manual)
	}
	return checkMutexWords(o, &e.mon.words.queueLock)
}

package prims

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: eventKind, Repair: repairEvent, Wake: wakeQueue, Check: checkEvent, Describe: describeEvent, Inspect: inspectEvent,
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

func describeEvent(a *arenakernel.Arena, o arenakernel.Object) string {
	mode, err := eventModeOf(a, o)
	if err != nil {
		return err.Error()
	}
	e := buildEvent(a, o, mode, true)
	var b strings.Builder
	fmt.Fprintf(&b, "%v, ", e.mode)
	if e.auto == nil {
		fmt.Fprintf(&b, "counter %d, next %#x", e.manual.words.value.Load(), e.manual.words.next.Load())
	} else {
		fmt.Fprintf(&b, "%v, next %#x, %d spare", e.auto.load(), e.auto.next.Load(), e.auto.words.spare.Load())
		for _, h := range e.auto.shares {
			if n := h.unknown(); n > 0 {
				fmt.Fprintf(&b, ", %d handed to %v and not seen", n, arenakernel.ParticipantID(h.name.Load()&arenakernel.ParticipantIDMask))
			}
		}
	}
	b.WriteString(describeMonitor(e.mon))
	return b.String()
}

package prims

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync/arena"
)

func init() {
	arena.RegisterKind(arena.KindOps{
		Kind: eventKind, Repair: repairEvent, Wake: wakeQueue, Check: checkEvent, Describe: describeEvent, Inspect: inspectEvent,
	})
}

func repairEvent(a *arena.Arena, o arena.Object, dead arena.ParticipantID) {
	if mode, err := eventModeOf(a, o); err == nil {
		repairMonitor(buildEvent(a, o, mode, true).mon, dead)
	}
}

func checkEvent(a *arena.Arena, o arena.Object) error {
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

func describeEvent(a *arena.Arena, o arena.Object) string {
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
				fmt.Fprintf(&b, ", %d handed to %v and not seen", n, arena.ParticipantID(h.name.Load()&arena.ParticipantIDMask))
			}
		}
	}
	b.WriteString(describeMonitor(e.mon))
	return b.String()
}

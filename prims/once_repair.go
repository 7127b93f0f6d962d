package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

func repairOnce(a *arena.Arena, o arena.Object, dead arena.ParticipantID) {
	if o.Size >= onceBytes {
		repairMonitor(buildOnce(a, o, true).mon, dead)
	}
}

func checkOnce(a *arena.Arena, o arena.Object) error {
	if o.Size < onceBytes {
		return wrongKind("once.check", o, onceKind, onceVersion)
	}
	x := buildOnce(a, o, true)
	if err := checkMutexWords(o, &x.words.mon.queueLock); err != nil {
		return err
	}
	if d := x.done.Load(); d > 1 {
		return x.mon.fail("once.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("it is done %d times", d))
	}
	return nil
}

func describeOnce(a *arena.Arena, o arena.Object) string {
	if o.Size < onceBytes {
		return "too small"
	}
	x := buildOnce(a, o, true)
	s := fmt.Sprintf("done %d", x.done.Load())
	if n := arena.ParticipantID(x.words.runner.Load() & arena.ParticipantIDMask); n != 0 {
		s += fmt.Sprintf(", runner %v", n)
	}
	return s + describeMonitor(x.mon)
}

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func repairOnce(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= onceBytes {
		repairMonitor(buildOnce(a, o, true).mon, dead)
	}
}

func checkOnce(a *arenakernel.Arena, o arenakernel.Object) error {
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

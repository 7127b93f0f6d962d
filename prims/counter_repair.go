package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func repairCounter(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= counterBytes(a.MaxParticipants()) {
		repairMonitor(buildCounter(a, o, "", true).mon, dead)
	}
}

func checkCounter(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < counterBytes(a.MaxParticipants()) {
		return wrongKind("counter.check", o, o.Kind, counterVersion)
	}
	t := buildCounter(a, o, "", true)
	if err := checkMutexWords(o, &t.words.mon.queueLock); err != nil {
		return err
	}
	if n := t.count(); n < 0 {
		return t.mon.fail("counter.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("its counter is %d", n))
	}
	return nil
}

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func repairBarrier(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= barrierBytes(a.MaxParticipants()) {
		repairMonitor(buildBarrier(a, o, nil, true).mon, dead)
	}
}

func checkBarrier(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < barrierBytes(a.MaxParticipants()) {
		return wrongKind("barrier.check", o, barrierKind, barrierVersion)
	}
	x := buildBarrier(a, o, nil, true)
	w := x.words
	if err := checkMutexWords(o, &w.mon.queueLock); err != nil {
		return err
	}
	if p, e := int64(w.pending.Load()), int64(w.expected.Load()); p < 0 || e < 0 {
		return x.mon.fail("barrier.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("%d arrivals are to come, %d a phase", p, e))
	}
	return nil
}

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func repairSemaphore(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= semaphoreBytes(a.MaxParticipants()) {
		repairMonitor(buildSemaphore(a, o, true).mon, dead)
	}
}

func checkSemaphore(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < semaphoreBytes(a.MaxParticipants()) {
		return wrongKind("semaphore.check", o, semaphoreKind, semaphoreVersion)
	}
	s := buildSemaphore(a, o, true)
	if err := checkMutexWords(o, &s.words.mon.queueLock); err != nil {
		return err
	}
	pool := poolWord(s.words.free.Load())
	if free := pool.permits(); free > s.size || pool.open() && !s.moves {
		return s.mon.fail("semaphore.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("%d of %d permits are free (%#x)", free, s.size, uint64(pool)))
	}
	for i, h := range s.shares {
		if s.moves {
			break // the shares of a transferable semaphore count grants, and may wrap
		}
		if q := fastWord(h.fast.Load()); q.permits() > s.size || q>>63 != 0 {
			return s.mon.fail("semaphore.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("share %d is %v (%#x)", i+1, q, uint64(q)))
		}
	}
	return nil
}

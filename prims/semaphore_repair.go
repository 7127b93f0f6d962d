package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func repairSemaphore(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if s := semaphoreToRepair(a, o); s != nil {
		repairMonitor(s.mon, dead)
	}
}

// semaphoreToRepair makes the handle of a reaper, or returns nil if there is nothing to repair.
func semaphoreToRepair(a *arenakernel.Arena, o arenakernel.Object) *Semaphore {
	if o.Size < semaphoreBytes(a) {
		return nil
	}
	// If the list of records is corrupt, nobody can open the Semaphore. A process that has it open
	// repairs it, because it knows the records.
	s, err := buildSemaphore(a, o, true)
	if err != nil || s.baseOff == 0 {
		// Without a record the dead participant has not used it. Another process may push the first
		// record, and use the base, before this one would take the queue lock.
		return nil
	}
	return s
}

func checkSemaphore(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < semaphoreBytes(a) {
		return wrongKind("semaphore.check", o, semaphoreKind, semaphoreVersion)
	}
	s, err := buildSemaphore(a, o, true)
	if err != nil {
		return err
	}
	if err := checkMutexWords(o, s.mon.words.queueLock); err != nil {
		return err
	}
	pool := poolWord(s.words.free.Load())
	if free := pool.permits(); free > s.size || pool.open() && !s.moves {
		return s.mon.fail("semaphore.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("%d of %d permits are free (%#x)", free, s.size, uint64(pool)))
	}
	for _, h := range s.shares().all {
		if s.moves {
			break // the shares of a transferable semaphore count grants, and may wrap
		}
		if q := fastWord(h.fast.Load()); q.permits() > s.size || q>>63 != 0 {
			return s.mon.fail("semaphore.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("the share of slot %d is %v (%#x)", h.slot, q, uint64(q)))
		}
	}
	return nil
}

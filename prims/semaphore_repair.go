package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// repairSemaphore takes back the permits of dead. A process whose slot has no record, because it has not opened the
// Semaphore, cannot make a change. It completes the last one. Those that wait, and the next call, do the rest.
func repairSemaphore(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size < semaphoreBytes(a) {
		return
	}
	// If the list of records is corrupt, nobody can open the Semaphore. A process that has it open
	// repairs it, because it knows the records.
	s, err := buildSemaphore(a, o, true)
	if err != nil {
		return
	}
	s.repairBare(dead, func(x *recordedChange, b *wakes) {
		s.reap(x, b)
		s.serve(x, b)
	}, func() {})
}

// wakeFirstOfSemaphore makes up for a reaper that has not opened the Semaphore.
func wakeFirstOfSemaphore(a *arenakernel.Arena, o arenakernel.Object, _ arenakernel.Owed) {
	if o.Size < semaphoreBytes(a) {
		return
	}
	if s, err := buildSemaphore(a, o, true); err == nil {
		s.wakeBare()
	}
}

// completeSemaphore completes the last change.
func completeSemaphore(a *arenakernel.Arena, o arenakernel.Object) bool {
	if o.Size < semaphoreBytes(a) {
		return false
	}
	s, err := buildSemaphore(a, o, true)
	return err == nil && s.completeBare()
}

// reap takes the waits of the dead off the queue, so that nothing is granted to them any more, and then
// takes back their shares. A permit whose grant was not accepted guards nothing that the dead participant
// may have written to. private is held.
func (s *Semaphore) reap(x *recordedChange, b *wakes) error {
	if err := s.beginReap(x, b); err != nil {
		return err
	}
	for _, h := range s.shares().all {
		if err := s.reapShare(x, h, b); err != nil {
			return err
		}
	}
	return nil
}

func (s *Semaphore) reapShare(x *recordedChange, h slotShare, b *wakes) error {
	for {
		// The loop ends: each turn follows a change by another call.
		if err := s.begin(x, b); err != nil {
			return err
		}
		n := h.owner(x)
		switch {
		case !s.absent(n) || !s.keeps(x, h):
			return nil
		case s.moves:
			s.takeBackGrants(x, h)
		case !s.a.Gone(n):
			s.unreaped.Store(true) // the next reap asks again
			return nil
		default:
			s.empties(x, h)
		}
		if ok, err := s.end(x, b); ok || err != nil {
			return err
		}
	}
}

// keeps reports whether the participant of a share has, or may get, permits that others cannot acquire.
func (s *Semaphore) keeps(x *recordedChange, h slotShare) bool {
	if s.moves {
		return s.unaccepted(x, h.semaphoreShare) > 0
	}
	return h.permitsIn(x) > 0 || valueIn(&h.fast) != 0
}

// empties adds to x that the permits of a share are free.
func (s *Semaphore) empties(x *recordedChange, h slotShare) {
	shut(&h.fast)
	x.set(semFast, uint32(h.slot), &h.fast, 0)
	s.setFree(x, s.freeIn(x)+h.permitsIn(x))
	h.setPermits(x, 0)
}

// inherit makes the share of this process's slot this process's own.
func (s *Semaphore) inherit(x *recordedChange, b *wakes) error {
	if s.moves {
		s.takeBackGrants(x, s.own)
	} else {
		s.empties(x, s.own)
	}
	x.set(semName, uint32(s.own.slot), &s.own.name, uint32(s.name))
	_, err := s.end(x, b)
	return err
}

// check is called ten times a second while a goroutine of this process waits. It makes up for the changes that
// a dead or a stopped process owes, and dates the wait that is first.
func (s *Semaphore) check() {
	dead := false // a holder is dead; the process that marked it may be stopped before it counts the death
	for _, h := range s.shares().all {
		n := arenakernel.ParticipantID(valueIn(&h.name)) & arenakernel.ParticipantIDMask
		dead = dead || n != 0 && s.keeps(&recordedChange{}, h) && s.a.Dead(n)
	}
	b := takeWakes()
	defer s.wake(b)
	s.private.Lock()
	defer s.private.Unlock()
	x := &s.scratch
	if dead || s.reapDue() {
		s.reap(x, b)
	}
	s.serve(x, b)
	s.dateFirst()
}

func checkSemaphore(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < semaphoreBytes(a) {
		return wrongKind("semaphore.check", o, semaphoreKind, semaphoreVersion)
	}
	s, err := buildSemaphore(a, o, true)
	if err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return failed(a, o, "semaphore.check", shmsync.ErrCorrupt, nil, fmt.Sprintf(format, args...))
	}
	pool := poolWord(s.words.free.Load())
	if free := s.poolFree(); free > s.size || pool.open() && !s.moves {
		return bad("%d of %d permits are free (%#x)", free, s.size, uint64(pool))
	}
	for _, h := range s.shares().all {
		if s.moves {
			break // the shares of a transferable semaphore count grants, and may wrap
		}
		if q := fastWord(h.fast.Load()); q.spare() > s.size {
			return bad("the share of slot %d is %v (%#x)", h.slot, q, uint64(q))
		}
	}
	return nil
}

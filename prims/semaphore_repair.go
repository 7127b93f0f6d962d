package prims

import (
	"cmp"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// bareSemaphore makes the handle of a reaper, which cannot wait. ok is false if the object is too small for a Semaphore.
func bareSemaphore(a *arenakernel.Arena, o arenakernel.Object) (s *Semaphore, ok bool) {
	if o.Size < semaphoreBytes(a) {
		return nil, false
	}
	s, err := buildSemaphore(a, o, true)
	return s, err == nil
}

// repairSemaphore makes the permits of the dead participant free again, and grants waits that can go on now; see
// repairBare.
func repairSemaphore(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) bool {
	s, ok := bareSemaphore(a, o)
	return ok && s.repairBare(dead, bareRepair{
		reap: func(x *recordedChange, b *wakes) {
			s.reap(x, b)
			s.serve(x, b)
		},
		owes: s.owes, makeRecord: s.slots.makeRecord,
	})
}

// owes reports whether a dead participant has permits, or the first wait in the queue may end now. A wait that may end
// now is left by a process that has died after it had made permits free, and before it has granted them.
func (s *Semaphore) owes(x *recordedChange, b *wakes) bool {
	if s.begin(x, b) != nil || s.empty(x) && s.poolFree() == s.size {
		return false // the Semaphore is damaged, or unused
	}
	for _, h := range s.shares().all {
		if s.absent(h.owner(x)) && s.keeps(x, h) {
			return true
		}
	}
	w, ok := s.head(x)
	return ok && (!s.waiting(w) || s.seenFree() >= w.Wanted().Load())
}

// wakeFirstOfSemaphore is called by a reaper. If the reaper could not make a record, it wakes the owners of the first
// waits, and one of them reaps; see wakeBare.
func wakeFirstOfSemaphore(a *arenakernel.Arena, o arenakernel.Object, _ arenakernel.Owed) {
	if s, ok := bareSemaphore(a, o); ok {
		s.wakeBare()
	}
}

// completeSemaphore completes the last change of the Semaphore, if the process that began the change has not.
func completeSemaphore(a *arenakernel.Arena, o arenakernel.Object) bool {
	s, ok := bareSemaphore(a, o)
	return ok && s.completeBare()
}

// reap takes the waits of dead participants off the queue, so that nothing is granted to them any more. Then reap
// makes the permits of their shares free. If the process of a dead participant has not ended yet, the permits of this
// participant stay taken until a later reap.
//
// In a transferable Semaphore, reap instead takes back the grants that the dead participants had not accepted. It takes
// them back even if the process has not ended yet, because a process uses what a permit protects only after it has
// accepted the permit. The caller holds s.private.
func (s *Semaphore) reap(x *recordedChange, b *wakes) error {
	err := s.beginReap(x, b) // if a peer has overwritten the queue, this fails, but the shares can still be reaped
	for _, h := range s.shares().all {
		err = cmp.Or(err, s.reapShare(x, h, b))
	}
	return err
}

// reapShare takes back the share h, if its participant is dead. If other processes change the Semaphore all the time,
// reapShare gives up, and the next reap takes the share back.
func (s *Semaphore) reapShare(x *recordedChange, h slotShare, b *wakes) error {
	for until := s.until(); s.overtaken < until; {
		// Another iteration means that another call has changed the Semaphore.
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
			s.unreaped.Store(true) // the next reap checks again
			return nil
		default:
			s.empties(x, h)
		}
		if ok, err := s.end(x, b); ok || err != nil {
			return err
		}
	}
	s.unreaped.Store(true)
	return nil
}

// keeps reports whether the share h has permits that a reap makes free when the participant of h is dead.
func (s *Semaphore) keeps(x *recordedChange, h slotShare) bool {
	if s.moves {
		return s.unaccepted(x, h.semaphoreShare) > 0
	}
	return h.permitsIn(x) > 0 || valueIn(&h.fast) != 0
}

// empties extends the change x, so that x makes all permits of the share h free.
func (s *Semaphore) empties(x *recordedChange, h slotShare) {
	shut(&h.fast)
	x.set(semFast, uint32(h.slot), &h.fast, 0)
	s.setFree(x, s.freeIn(x)+h.permitsIn(x))
	h.setPermits(x, 0)
}

// inherit makes this participant the owner of the slot's record, which an earlier participant of the slot had. The
// permits that were left in it become free; in a transferable semaphore, grants that were not accepted are taken back.
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

// check is called ten times a second while a goroutine of this process waits. It completes what a dead or a stopped
// process has left undone, and stores the present time in the first wait of the queue.
func (s *Semaphore) check() {
	dead := false // a participant with permits is dead; its death may not be counted yet
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

// torn reports whether a peer has damaged the queue, so that a wait of this process may never end; see isTorn.
func (s *Semaphore) torn(w *park.WaitNode) bool { return s.isTorn(w, oneQueue, s.serve) }

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
			break // in a transferable semaphore, shares count grants, and the counts may wrap
		}
		if q := fastWord(h.fast.Load()); q.spare() > s.size {
			return bad("the share of slot %d is %v (%#x)", h.slot, q, uint64(q))
		}
	}
	return nil
}

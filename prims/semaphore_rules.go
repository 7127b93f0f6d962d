package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("semaphore.gather.shut")
	_ = crashpoint.Register("semaphore.give.committed")
)

// semResult is the result of an attempt to acquire permits by a record, that is, by a change that the commit word
// makes visible at once.
type semResult uint8

const (
	semTaken  semResult = iota // the permits are acquired
	semQueued                  // the wait is queued
	semNotNow                  // there are not enough permits, or others wait
)

// takeOrJoin acquires n permits by a record, or queues a wait and returns its wait node. It spins before it queues
// the wait, because a process that exchanges permits with another process often gets them during the spin. spun is
// false if takeOrJoin did not spin because other calls wait.
func (s *Semaphore) takeOrJoin(n uint64) (waitNode *park.WaitNode, spun bool, err error) {
	r, err := s.take(n, nil)
	if r != semNotNow || err != nil {
		return nil, false, err
	}
	s.counts.add(countContended)
	if spun = s.queue.Seated() == 0 && valueIn(s.first) == 0; spun {
		taken, err := s.spinFor(n)
		if taken || err != nil {
			return nil, true, err
		}
	}
	if s.shares().err != nil {
		return nil, spun, s.corruptShares()
	}
	if waitNode, err = s.queue.TakeNode(); err != nil {
		return nil, spun, err
	}
	s.prepare(waitNode, n)
	if r, err = s.take(n, waitNode); r == semQueued {
		return waitNode, spun, nil
	}
	s.unused(waitNode)
	return nil, spun, err
}

// spinFor spins until n permits may be free, and then tries to acquire them. When spinFor begins, no process keeps
// unused permits in its share. Only a release opens a share, so an open share means that there may be free permits.
func (s *Semaphore) spinFor(n uint64) (taken bool, err error) {
	free := s.tuning.Spin(func() bool {
		taken = s.acquireFast(n)
		return taken || s.poolFree() >= n || valueIn(&s.words.opened) != 0
	})
	if free && !taken {
		var r semResult
		r, err = s.take(n, nil)
		taken = r == semTaken
	}
	if taken {
		s.counts.add(countSpin)
	}
	return taken, err
}

// take acquires n permits by a record. If that is not possible now, take queues the wait of waitNode, which prepare
// has made ready. If waitNode is nil, take queues no wait.
func (s *Semaphore) take(n uint64, waitNode *park.WaitNode) (semResult, error) {
	b := takeWakes()
	defer s.wake(b) // deferred before the Unlock, so it runs after the Unlock
	s.private.Lock()
	defer s.private.Unlock()
	x, served := &s.scratch, false
	for {
		// Another iteration means that another call has changed the Semaphore, or that this call has folded a share,
		// has reaped, or has inherited its record.
		if err := s.begin(x, b); err != nil {
			return semNotNow, err
		}
		enough, again := false, false
		if s.empty(x) {
			var err error
			if enough, again, err = s.enough(x, n, b); err != nil {
				return semNotNow, err
			}
		}
		switch {
		case again:
			continue
		case !enough && !served && (s.reapDue() || !s.empty(x)):
			// Dead participants may have the permits that this call, or the first wait, needs.
			served = true
			if err := s.tidy(x, b); err != nil {
				return semNotNow, err
			}
			continue
		case (enough && !s.moves || !enough && waitNode != nil) && s.own.owner(x) != s.name:
			if err := s.inherit(x, b); err != nil {
				return semNotNow, err
			}
			served = false // inherit may have freed permits that the first wait can take; tidy grants them
			continue
		case enough:
			s.setFree(x, s.freeIn(x)-n)
			if !s.moves {
				s.own.setPermits(x, s.own.permitsIn(x)+n)
			}
		case waitNode != nil:
			s.join(x, waitNode)
		case s.moves && s.empty(x):
			s.setFree(x, s.freeIn(x)) // opens the pool again
		}
		switch ok, err := s.end(x, b); {
		case err != nil:
			return semNotNow, err
		case !ok:
		case enough:
			race.Acquire(s.key)
			s.counts.took()
			return semTaken, nil
		case waitNode == nil:
			return semNotNow, nil
		default:
			return semQueued, nil
		}
	}
}

// enough reports whether n permits are free in the state that x has read. If not, it folds an open share, so that the
// unused permits of this share become free, and returns again = true: the caller has to begin again. If both results
// are false, no process keeps unused permits in its share.
func (s *Semaphore) enough(x *recordedChange, n uint64, b *wakes) (enough, again bool, err error) {
	if s.freeIn(x) >= n {
		return true, false, nil
	}
	if s.moves || x.get(&s.words.opened) == 0 {
		return false, false, nil
	}
	for _, h := range s.shares().all {
		if valueIn(&h.fast) == 0 {
			continue
		}
		s.fold(x, h)
		crashpoint.Hit("semaphore.gather.shut")
		_, err := s.end(x, b)
		return false, true, err
	}
	x.set(semOpened, 0, &s.words.opened, 0)
	return false, false, nil
}

// give releases n permits of this process, and grants waits that can go on now. ok is false if the process has
// fewer than n permits.
func (s *Semaphore) give(n uint64) (ok bool, err error) {
	race.ReleaseMerge(s.key)
	b := takeWakes()
	defer s.wake(b)
	s.private.Lock()
	defer s.private.Unlock()
	x := &s.scratch
	for {
		// Another iteration means that another call has changed the Semaphore, so the loop is
		// lock-free.
		if err := s.begin(x, b); err != nil {
			return false, err
		}
		had, opens := s.giveIn(x, n)
		if !had {
			if s.load() != x.c {
				continue
			}
			return false, nil
		}
		granted := s.grantToo(x)
		switch ok, err := s.end(x, b); {
		case err != nil:
			return false, err
		case ok:
			s.reconsider(granted)
			if opens {
				s.fast.Store(fastOwn)
			}
			crashpoint.Hit("semaphore.give.committed")
			if valueIn(s.first) != 0 {
				s.serve(x, b) // the permits are released; an error concerns only the waits
			}
			return true, nil
		}
	}
}

// giveIn extends the change x, so that x releases n permits of this process. opens is true if x also opens the share of
// the process, so that its next calls need no record.
func (s *Semaphore) giveIn(x *recordedChange, n uint64) (ok, opens bool) {
	if s.moves {
		free := s.freeIn(x)
		if n > s.size-min(free, s.size) {
			return false, false
		}
		s.setFree(x, free+n)
		return true, false
	}
	h := s.own
	if h.owner(x) != s.name {
		return n == 0, false
	}
	had := h.permitsIn(x)
	spare := min(shut(&h.fast).spare(), had)
	if had-spare < n {
		return false, false
	}
	// The share is opened only if this process also made the last release by a record. The word releaser shows only that
	// no other process has released permits by a record since then. Others may have acquired some.
	last := s.words.releaser.Load()
	if s.empty(x) && last == uint64(s.name) && s.mayOpen() {
		x.set(semOpened, 0, &s.words.opened, 1)
		x.set(semFast, uint32(h.slot), &h.fast, uint32(spare+n)|fastOpenValue)
		return true, true
	}
	if last != uint64(s.name) {
		s.words.releaser.Store(uint64(s.name))
	}
	x.set(semFast, uint32(h.slot), &h.fast, 0)
	h.setPermits(x, had-spare-n)
	s.setFree(x, s.freeIn(x)+spare+n)
	return true, false
}

// grantToo extends the change x, so that x also grants the first wait, if there are enough permits and the grant fits
// into the record. It returns the owner of the wait, or 0 if it grants nothing.
func (s *Semaphore) grantToo(x *recordedChange) (owner arenakernel.ParticipantID) {
	y := *x
	if w, ok := s.head(&y); ok && s.waiting(w) && s.freeIn(&y) >= w.Wanted().Load() && s.grant(&y, w) && !y.tooMany && !y.torn {
		*x = y
		return w.Owner()
	}
	return 0
}

// grant extends the change x, so that x grants the first wait. It reports false if the owner of the wait
// cannot have permits.
func (s *Semaphore) grant(x *recordedChange, w wait) bool {
	n, owner := w.Wanted().Load(), w.Owner()
	h, ok := s.shareOf(owner.Slot())
	if !ok || h.owner(x) != owner {
		return false // a correct participant gets the share of its slot before it queues a wait
	}
	s.detach(x, w, arenakernel.RecordedGranted)
	s.setFree(x, s.freeIn(x)-n)
	h.setPermits(x, h.permitsIn(x)+n)
	return true
}

// serve grants queued waits in order while there are permits for the first wait. If the owner of the first wait is
// dead, serve takes that wait off the queue. If other processes change the Semaphore all the time, serve leaves the rest
// to the periodic checks of the waiters. The caller holds s.private.
func (s *Semaphore) serve(x *recordedChange, b *wakes) error {
	for until := s.until(); s.overtaken < until; {
		// Another iteration means that another call has changed the Semaphore, or that this call has taken a wait
		// off the queue or closed a share. A participant whose share is closed loses the unused permits of the
		// share.
		if err := s.begin(x, b); err != nil {
			return err
		}
		w, ok := s.head(x)
		switch {
		case !ok && !x.torn:
			return nil
		case !ok:
		case !s.waiting(w):
			s.remove(x, w, arenakernel.RecordedRemoved)
		default:
			enough, again, err := s.enough(x, w.Wanted().Load(), b)
			switch {
			case err != nil:
				return err
			case again:
				s.overtaken++ // limits the loop, because other processes may open their shares again and again
				continue
			case !enough:
				if ok, err := s.end(x, b); ok || err != nil {
					return err
				}
				continue
			case !s.grant(x, w):
				s.remove(x, w, arenakernel.RecordedRemoved)
			}
		}
		var granted arenakernel.ParticipantID
		if w.Node != nil && x.get(w.Next()) == arenakernel.RecordedGranted {
			granted = w.Owner()
		}
		if ok, err := s.end(x, b); err != nil {
			return err
		} else if ok {
			s.reconsider(granted)
		}
	}
	return nil
}

// remove extends the change x, so that x takes a wait off the queue and gives it no permits.
func (s *Semaphore) remove(x *recordedChange, w wait, outcome uint32) {
	s.detach(x, w, outcome)
	s.removed(x)
}

// removed is called after x has taken a wait off the queue. If the Semaphore is transferable and the queue is empty
// after x, removed extends x, so that x opens the pool.
func (s *Semaphore) removed(x *recordedChange) {
	if s.moves {
		s.setFree(x, s.freeIn(x))
	}
}

// tidy reaps if a participant has died since the last reap, and then grants waits that can go on.
func (s *Semaphore) tidy(x *recordedChange, b *wakes) error {
	if s.reapDue() {
		if err := s.reap(x, b); err != nil {
			return err
		}
	}
	return s.serve(x, b)
}

// semaphoreWaits implements the interface that [park.WaitNode] needs of a Semaphore.
type semaphoreWaits Semaphore

// Withdraw calls the method withdraw of the Semaphore.
func (s *semaphoreWaits) Withdraw(waitNode *park.WaitNode) bool {
	return (*Semaphore)(s).withdraw(waitNode)
}

// withdraw takes a wait of this process off the queue, and puts its wait node back into the pool. It reports false
// if the wait was granted.
func (s *Semaphore) withdraw(waitNode *park.WaitNode) bool {
	b := takeWakes()
	defer s.wake(b)
	s.private.Lock()
	defer s.private.Unlock()
	x, w := &s.scratch, wait{waitNode.Off, waitNode.Node}
	for {
		// Another iteration means that another call has changed the Semaphore, so the loop is
		// lock-free.
		err := s.begin(x, b)
		v := x.get(w.Next())
		switch {
		case err != nil:
		case v == arenakernel.RecordedGranted && waitNode.Resolved():
			return false
		case queuedValue(v):
			s.remove(x, w, arenakernel.RecordedLeft)
			var ok bool
			if ok, err = s.end(x, b); err == nil && !ok {
				continue
			}
		case s.load() != x.c:
			continue // the record that grants the wait may be incomplete
		default: // a peer has overwritten the node
			waitNode.Forget()
			return true
		}
		if err != nil { // a peer has overwritten the queue, and the queue may still name the node
			waitNode.Forget()
			return true
		}
		s.unused(waitNode)
		s.serve(x, b)
		return true
	}
}

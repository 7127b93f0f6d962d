package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// resolve grants what can be granted, in order.
func (s *Semaphore) resolve(b *wakes) {
	defer s.reopen()
	for w, ok := s.fifo.head(); ok; w, ok = s.fifo.head() {
		if !s.mon.waiting(w) {
			s.detach(w)
			s.mon.releaseNode(w)
			continue
		}
		if !s.canTake(w.Wanted().Load()) {
			return
		}
		if s.mon.end(b, w, 0, 0) {
			s.account(w)
		}
	}
}

func (s *Semaphore) account(w wait) {
	n, owner := w.Wanted().Load(), w.Owner()
	h := s.shareOf(owner.Slot())
	var c change
	if n > s.pool() || h == nil {
		s.mon.account(w, nil) // a peer wrote the owner
		return
	}
	if !s.moves {
		if h.name.Load() == uint64(owner) {
			c.set(&h.permits, h.permits.Load()+n)
		} else {
			c.set(&s.words.free, s.words.free.Load()+h.permits.Load()+shut(h).permits()-n)
			c.set(&h.name, uint64(owner))
			c.set(&h.permits, n)
			c.set(&h.fast, 0)
			s.mon.account(w, &c)
			return
		}
	} else if h.name.Load() == uint64(owner) {
		c.set(&h.permits, h.permits.Load()+n) // a participant whose wait is queued has inherited the share
	}
	c.set(&s.words.free, s.words.free.Load()-n)
	s.mon.account(w, &c)
}

func (s *Semaphore) detach(w wait)          { s.fifo.detach(w) }
func (s *Semaphore) requeue(w wait)         { s.fifo.requeue(w) }
func (s *Semaphore) each(f func(wait) bool) { s.fifo.each(f) }

// clear empties the queue, and computes the free permits anew.
func (s *Semaphore) clear() {
	s.fifo.clear()
	if s.moves {
		return
	}
	free := s.size
	for _, h := range s.shares().all {
		free -= min(h.total(), free)
	}
	s.words.free.Store(free)
}

// reap takes back the shares of the dead. A permit whose grant was not accepted guards nothing
// that the dead participant may have written to.
func (s *Semaphore) reap(dead func(arenakernel.ParticipantID) bool) {
	if s.moves {
		for _, h := range s.shares().all {
			if s.unaccepted(h.semaphoreShare) > 0 && dead(arenakernel.ParticipantID(h.name.Load()&arenakernel.ParticipantIDMask)) {
				s.takeBackGrants(h.semaphoreShare, h.name.Load())
			}
		}
		return
	}
	for _, h := range s.shares().all {
		n := arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask)
		if h.total() > 0 && dead(n) && s.mon.ended(n) {
			var c change
			c.set(&s.words.free, s.words.free.Load()+h.permits.Load()+shut(h.semaphoreShare).permits())
			c.set(&h.permits, 0)
			c.set(&h.fast, 0)
			s.mon.commit(&c)
		}
	}
}

func (s *Semaphore) holders(f func(arenakernel.ParticipantID)) {
	for _, h := range s.shares().all {
		if s.moves && s.unaccepted(h.semaphoreShare) > 0 || !s.moves && h.total() > 0 {
			f(arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask))
		}
	}
}

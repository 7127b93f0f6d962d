package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("semaphore.fast.acquired")
	_ = crashpoint.Register("semaphore.fast.released")
	_ = crashpoint.Register("semaphore.open.marked")
	_ = crashpoint.Register("semaphore.open.filled")
	_ = crashpoint.Register("semaphore.gather.shut")
)

// Where a handle acquires permits without the queue lock.
const (
	fastOff  = iota // nowhere: it has not released twice, or is closed
	fastOwn         // in the share of this process, which is open
	fastPool        // in the pool of a transferable Semaphore
)

// acquireFast acquires n permits without the queue lock, if it can.
func (s *Semaphore) acquireFast(n uint64) bool {
	if where := s.fast.Load(); where != fastOwn {
		return where == fastPool && s.acquireFromPool(n)
	}
	w := &s.own.fast
	for {
		q := fastWord(w.Load())
		if !q.canAcquire(n) {
			return false
		}
		// sync(semaphore.fast): acquire
		// lin: the permits are acquired here.
		if w.CompareAndSwap(uint64(q), uint64(q.acquire(n))) {
			crashpoint.Hit("semaphore.fast.acquired")
			return true
		}
	}
}

// releaseFast releases n permits without the queue lock, if it can.
func (s *Semaphore) releaseFast(n uint64) bool {
	if where := s.fast.Load(); where != fastOwn {
		return where == fastPool && s.releaseToPool(n)
	}
	w := &s.own.fast
	for {
		q := fastWord(w.Load())
		if !q.canRelease(n) {
			return false
		}
		// sync(semaphore.fast): release
		// lin: the permits are released here.
		if w.CompareAndSwap(uint64(q), uint64(q.release(n))) {
			crashpoint.Hit("semaphore.fast.released")
			return true
		}
	}
}

// byLatch reports whether this process always takes the queue lock: for the edges of the race
// detector, and for the counts of an arena that counts.
func (s *Semaphore) byLatch() bool { return race.Enabled || s.mon.counts != nil }

func (s *Semaphore) acquireFromPool(n uint64) bool {
	w := &s.words.free
	for {
		p := poolWord(w.Load())
		if !p.open() || p.permits() < n {
			return false
		}
		// sync(semaphore.fast): acquire
		// lin: the permits are acquired here.
		if w.CompareAndSwap(uint64(p), uint64(p)-n) {
			return true
		}
	}
}

func (s *Semaphore) releaseToPool(n uint64) bool {
	w := &s.words.free
	for {
		p := poolWord(w.Load())
		if !p.open() || p.permits() > s.size || n > s.size-p.permits() {
			return false
		}
		// sync(semaphore.fast): release
		// lin: the permits are released here.
		if w.CompareAndSwap(uint64(p), uint64(p)+n) {
			return true
		}
	}
}

// closePool changes free into a word that only the holder of the queue lock changes, and returns
// it.
func (s *Semaphore) closePool() uint64 {
	w := &s.words.free
	for {
		p := poolWord(w.Load())
		// sync(semaphore.fast): acquire
		if !p.open() || w.CompareAndSwap(uint64(p), p.permits()) {
			return p.permits()
		}
	}
}

// reopen opens the words that were closed while the queue lock was held, if no wait is queued.
func (s *Semaphore) reopen() {
	if !s.moves || s.byLatch() || !s.fifo.empty() {
		return
	}
	// A share that is closed stays closed: only the holder of the queue lock opens it.
	if p := poolWord(s.words.free.Load()); !p.open() {
		// sync(semaphore.fast): release
		s.words.free.Store(uint64(p | poolOpen))
	}
}

// leaveOpen is leave for a caller that has ended no wait and leaves no wait queued.
func (s *Semaphore) leaveOpen() {
	s.reopen()
	s.mon.leaveQuiet()
}

// openShare keeps n free permits for this process, and lets it acquire and release without the
// queue lock from now on. It does so only if no other process wants them: this process also made
// the last release. The queue lock is held, and no wait is queued.
func (s *Semaphore) openShare(n uint64) {
	w, h := s.words, s.own
	last := uint64(s.name)
	// A process that has released nothing may have no share yet: the share of its slot may belong
	// to a dead participant.
	if w.last.Load() != last || h.name.Load() != last || s.size > fastMost || s.byLatch() {
		storeWord(&w.last, last)
		return
	}
	storeWord(&w.opened, w.opened.Load()|s.openBit(s.name.Slot()))
	crashpoint.Hit("semaphore.open.marked")
	q := makeFast(h.permits.Load(), n)
	var c change
	c.set(&w.free, w.free.Load()-n)
	c.set(&h.permits, 0)
	c.set(&h.fast, uint64(q))
	s.mon.commit(&c)
	crashpoint.Hit("semaphore.open.filled")
	// sync(semaphore.fast): release
	h.fast.Store(uint64(q | fastOpen))
	s.fast.Store(fastOwn)
}

// openBit is the bit of opened that says that the share of this slot, or of one 64 slots away,
// may be open.
func (s *Semaphore) openBit(slot int) uint64 { return 1 << (slot & 63) }

// gather closes all shares. Afterwards the permits that participants have are in permits, and
// those that were kept for them are in free. The queue lock is held.
func (s *Semaphore) gather() {
	marks := s.words.opened.Load()
	if marks == 0 {
		return
	}
	for _, h := range s.shares().all {
		if marks&s.openBit(h.slot) != 0 {
			s.closeShare(h.semaphoreShare)
		}
	}
	storeWord(&s.words.opened, 0)
}

// closeShare closes one share.
func (s *Semaphore) closeShare(h *semaphoreShare) {
	q := shut(h)
	if q == 0 {
		return
	}
	crashpoint.Hit("semaphore.gather.shut")
	var c change
	c.set(&s.words.free, s.words.free.Load()+q.spare())
	c.set(&h.permits, h.permits.Load()+q.used())
	c.set(&h.fast, 0)
	s.mon.commit(&c)
}

// shut makes the participant of a share stop changing its fast word, and returns the word.
func shut(h *semaphoreShare) fastWord {
	for {
		q := fastWord(h.fast.Load())
		// sync(semaphore.fast): acquire
		if !q.open() || h.fast.CompareAndSwap(uint64(q), uint64(q&^fastOpen)) {
			return q &^ fastOpen
		}
	}
}

// total is how many of the semaphore's permits are in a share. Its participant may be acquiring
// and releasing.
func (h *semaphoreShare) total() uint64 {
	return h.permits.Load() + fastWord(h.fast.Load()).permits()
}

// spares is how many permits are kept for participants. It works without the queue lock, and may
// be out of date.
func (s *Semaphore) spares() (n uint64) {
	if marks := s.words.opened.Load(); marks != 0 {
		for _, h := range s.shares().all {
			if marks&s.openBit(h.slot) != 0 {
				n += fastWord(h.fast.Load()).spare()
			}
		}
	}
	return n
}

// ownIn is how many permits participant n owns in the share of its slot.
func (h *semaphoreShare) ownIn(n arenakernel.ParticipantID) uint64 {
	if h.name.Load() != uint64(n) {
		return 0
	}
	return h.permits.Load() + fastWord(h.fast.Load()).used()
}

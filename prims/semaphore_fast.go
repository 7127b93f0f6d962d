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

// Where a handle has permits without the queue lock.
const (
	fastOff  = iota // it has not released twice, or is closed
	fastOwn         // in the share of this process, which was opened
	fastPool        // in the pool, of a transferable Semaphore
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

// byLatch reports whether this process goes by the queue lock always: the race detector has
// its edges there, and so have the counts of an arena that counts.
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

// closePool makes free a word that only the queue lock's holder changes, and gives it.
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

// reopen opens what was closed for the time of the queue lock, if nobody is queued.
func (s *Semaphore) reopen() {
	if !s.moves || s.byLatch() || !s.fifo.empty() {
		return
	}
	// A closed word stays as it is: only the holder of the queue lock opens it.
	if p := poolWord(s.words.free.Load()); !p.open() {
		// sync(semaphore.fast): release
		s.words.free.Store(uint64(p | poolOpen))
	}
}

// leaveOpen is leave for a caller that has let no waiter go and leaves none queued.
func (s *Semaphore) leaveOpen() {
	s.reopen()
	s.mon.leaveQuiet()
}

// openShare keeps n permits that are free for this process, and lets it acquire and release
// without the queue lock from now on, if no other process wants them: this process also did
// the last release. The queue lock is held, and no wait is queued.
func (s *Semaphore) openShare(n uint64) {
	w, h := s.words, s.own
	last := uint64(s.name)
	// A process that releases nothing may have no share yet: that of its slot is the dead
	// one's.
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

// openBit is the bit of opened that says that the shares of some slots may be open.
func (s *Semaphore) openBit(slot int) uint64 { return 1 << (slot & 63) }

// gather closes all shares: what their participants have is in permits then, what was
// kept for them in free. The queue lock is held.
func (s *Semaphore) gather() {
	marks := s.words.opened.Load()
	if marks == 0 {
		return
	}
	for i, h := range s.shares {
		if marks&s.openBit(i+1) != 0 {
			s.closeShare(h)
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

// shut has the participant of a share change its fast word no more, and gives the word.
func shut(h *semaphoreShare) fastWord {
	for {
		q := fastWord(h.fast.Load())
		// sync(semaphore.fast): acquire
		if !q.open() || h.fast.CompareAndSwap(uint64(q), uint64(q&^fastOpen)) {
			return q &^ fastOpen
		}
	}
}

// total is how many of the semaphore's permits are in a share, whose participant may
// be acquiring and releasing.
func (h *semaphoreShare) total() uint64 {
	return h.permits.Load() + fastWord(h.fast.Load()).permits()
}

// spares is how many permits are kept for participants, without the queue lock: a look.
func (s *Semaphore) spares() (n uint64) {
	if marks := s.words.opened.Load(); marks != 0 {
		for i, h := range s.shares {
			if marks&s.openBit(i+1) != 0 {
				n += fastWord(h.fast.Load()).spare()
			}
		}
	}
	return n
}

// ownIn gives how many permits of the share of its slot a participant owns.
func (h *semaphoreShare) ownIn(n arenakernel.ParticipantID) uint64 {
	if h.name.Load() != uint64(n) {
		return 0
	}
	return h.permits.Load() + fastWord(h.fast.Load()).used()
}

package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("semaphore.fast.acquired")
	_ = crashpoint.Register("semaphore.fast.released")
)

// The values of Semaphore.fast. They say where a handle may acquire and release permits without a record, that is,
// by one CAS.
const (
	fastOff  = iota // nowhere: no word was opened for this handle yet, or the handle is closed
	fastOwn         // in the share of this process: a word with the permits that the process keeps
	fastPool        // in the pool of a transferable Semaphore: a word with the permits that any process may take
)

// acquireFast acquires n permits without a record, if it can.
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

// releaseFast releases n permits without a record, if it can.
func (s *Semaphore) releaseFast(n uint64) bool {
	if where := s.fast.Load(); where != fastOwn {
		return where == fastPool && s.releaseToPool(n)
	}
	w := &s.own.fast
	for {
		q := fastWord(w.Load())
		if !q.canRelease(n, uint64(valueIn(&s.own.permits))) {
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

// mayOpen reports whether words of s may be open, that is, whether processes may change them without a record. No
// word is open under the race detector, or in an arena that counts operations: only calls with records report to the
// detector and count themselves. No word is open if s has more permits than an open word can count.
func (s *Semaphore) mayOpen() bool { return !race.Enabled && s.counts == nil && s.size <= fastMost }

func (s *Semaphore) acquireFromPool(n uint64) bool {
	w := &s.words.free
	for {
		p := poolWord(w.Load())
		if !p.canAcquire(n) {
			return false
		}
		// sync(semaphore.fast): acquire
		// lin: the permits are acquired here.
		if w.CompareAndSwap(uint64(p), uint64(p.acquire(n))) {
			return true
		}
	}
}

func (s *Semaphore) releaseToPool(n uint64) bool {
	w := &s.words.free
	for {
		p := poolWord(w.Load())
		if !p.canRelease(n, s.size) {
			return false
		}
		// sync(semaphore.fast): release
		// lin: the permits are released here.
		if w.CompareAndSwap(uint64(p), uint64(p.release(n))) {
			return true
		}
	}
}

// poolFree returns the number of permits in the pool, which any participant may take. The number may be out of
// date.
func (s *Semaphore) poolFree() uint64 {
	return poolWord(s.words.free.Load()).spare() | uint64(valueIn(&s.words.freeHigh))<<31
}

// seenFree returns how many permits can be acquired: those in the pool, and the unused ones that participants keep
// in their shares. The number may be out of date if the commit word changes meanwhile.
func (s *Semaphore) seenFree() (n uint64) {
	for range 16 {
		c := s.load()
		n = s.poolFree()
		if valueIn(&s.words.opened) != 0 {
			for _, h := range s.shares().all {
				n += fastWord(h.fast.Load()).spare()
			}
		}
		if s.load() == c {
			break
		}
	}
	return min(n, s.size)
}

// permitsSeen returns how many permits the share h has. The number may be out of date.
func (h *semaphoreShare) permitsSeen() uint64 {
	return uint64(valueIn(&h.permits)) | uint64(valueIn(&h.permitsHigh))<<32
}

// ownIn returns how many permits the participant n uses, if h is its share. The unused permits that h keeps are not
// counted.
func (h *semaphoreShare) ownIn(n arenakernel.ParticipantID) uint64 {
	if valueIn(&h.name) != uint32(n) {
		return 0
	}
	spare := fastWord(h.fast.Load()).spare()
	return max(h.permitsSeen(), spare) - spare
}

//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// carriedOut reports whether the last change of the queue is by the given participant, and all words of this change
// have their new values. carriedOut itself changes no word.
func (q *recordQueue) carriedOut(by arenakernel.ParticipantID) bool {
	c := q.load()
	if c.slot() != by.Slot() {
		return false
	}
	r, ok := q.of.recordAt(c.slot())
	if !ok || r.head.Load() != q.headOf(c) {
		return false
	}
	kinds := r.kinds.Load()
	for i := range recordMost {
		kind := uint8(kinds >> (8 * i))
		if kind == 0 {
			break
		}
		w := q.wordAt(kind, uint32(r.entries[i].to.Load()>>32))
		if w == nil || w.Load() == r.entries[i].was.Load() {
			return false
		}
	}
	return q.load() == c
}

// CarriedOut calls carriedOut for the queue of f.
func (f *FairMutex) CarriedOut(by arenakernel.ParticipantID) bool { return f.carriedOut(by) }

// CarriedOut calls carriedOut for the queue of c.
func (c *Cond) CarriedOut(by arenakernel.ParticipantID) bool { return c.core.carriedOut(by) }

// CarriedOut calls carriedOut for the queue of the bucket of key.
func (x *MultiLock) CarriedOut(key uint64, by arenakernel.ParticipantID) bool {
	k := x.bucket(key)
	k.private.Lock()
	defer k.private.Unlock()
	return k.carriedOut(by)
}

// nextChange makes the commit word say that another process has made a change, whose record is complete.
func (q *recordQueue) nextChange() { q.commit.Store(uint64(q.load().next(0))) }

// reapBeside calls reap with the private lock held, and returns whether the next call reaps again.
func (q *recordQueue) reapBeside(reap func(x *recordedChange, b *wakes)) (again bool) {
	b := takeWakes()
	defer q.wake(b)
	q.private.Lock()
	defer q.private.Unlock()
	reap(&q.scratch, b)
	return q.reapDue()
}

// OvertakenMost is how many changes for one key peers may overtake before a reaper gives the key up.
const OvertakenMost = overtakenMost

// Overtaken has a commit word that other processes change.
type Overtaken interface {
	NextChange()
	ReapAndServe() (again bool)
}

// NextChange makes the commit word say that another process has made a change.
func (s *Semaphore) NextChange() { s.nextChange() }

// ReapAndServe reaps, serves the queue, and returns whether the next call reaps again.
func (s *Semaphore) ReapAndServe() (again bool) {
	return s.reapBeside(func(x *recordedChange, b *wakes) {
		s.reap(x, b)
		s.serve(x, b)
	})
}

// GiveShareTo gives the share of this process to the participant n, and sets the number of permits in it.
func (s *Semaphore) GiveShareTo(n arenakernel.ParticipantID, permits uint32) {
	s.own.name.Store(uint64(makeRecorded(uint32(n), 1)))
	s.own.permits.Store(uint64(makeRecorded(permits, 1)))
	s.own.fast.Store(0)
	s.words.free.Store(0)
}

// NextChange makes the commit word say that another process has made a change.
func (f *FairMutex) NextChange() { f.nextChange() }

// ReapAndServe reaps, serves the queue, and returns whether the next call reaps again.
func (f *FairMutex) ReapAndServe() (again bool) {
	return f.reapBeside(func(x *recordedChange, b *wakes) {
		f.reap(x, b)
		f.serve(x, b)
	})
}

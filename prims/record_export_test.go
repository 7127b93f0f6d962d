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

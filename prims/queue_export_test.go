//go:build linux

package prims

import (
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Waiting is how many wait for an item and for room; -1 when q cannot be locked.
func (q *Queue[T]) Waiting() (getters, putters int) {
	x := q.core
	if err := x.mon.enter(nil); err != nil {
		return -1, -1
	}
	defer x.mon.leave(nil)
	x.getters.each(func(wait) bool { getters++; return true })
	x.putters.each(func(wait) bool { putters++; return true })
	return getters, putters
}

// Consistent makes impossible slots of q free, and reports whether there were none, and whether
// slots and ring agree.
func (q *Queue[T]) Consistent() bool {
	x := q.core
	if err := x.mon.enter(nil); err != nil {
		return false
	}
	defer x.mon.leave(nil)
	if x.index() {
		return false
	}
	put := 0
	for i := uint32(1); i <= x.slots; i++ {
		switch st := queueState(x.slot(i).state.Load()); st.kind() {
		case queueFull:
			if !x.published(i, st) {
				return false
			}
			put++
		case queueReturned:
			put++
		case queueHanding:
			return false
		}
	}
	return put == x.length()
}

// Stages is how many blocks for waiting items this process keeps.
func (q *Queue[T]) Stages() int {
	q.core.staging.Lock()
	defer q.core.staging.Unlock()
	return len(q.core.stages)
}

// StrangersLease is l as another participant would have it.
func StrangersLease[T any](l Lease[T], n arena.ParticipantID) Lease[T] {
	l.state = l.state.with(queueLeased, n)
	return l
}

// Object is the object under q.
func (q *Queue[T]) Object() arenakernel.Object { return q.core.object }

// SetSlot overwrites the state word of the slot at position i.
func (q *Queue[T]) SetSlot(i uint32, v uint64) { q.core.slot(i).state.Store(v) }

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

// Consistent makes the index of q anew and reports whether it was right.
func (q *Queue[T]) Consistent() bool {
	x := q.core
	if err := x.mon.enter(nil); err != nil {
		return false
	}
	defer x.mon.leave(nil)
	list := func() (order, free []uint32) {
		for i := queuePair(x.words.ends.Load()).low(); i != 0 && len(order) <= int(x.capacity); i = uint32(x.slot(i).next.Load()) {
			order = append(order, i)
		}
		for i := queuePair(x.words.free.Load()).low(); i != 0 && len(free) <= int(x.capacity); i = uint32(x.slot(i).next.Load()) {
			free = append(free, i)
		}
		return order, free
	}
	order, free := list()
	out, ends, n := x.words.out.Load(), x.words.ends.Load(), queuePair(x.words.free.Load()).high()
	x.index()
	again, freeAgain := list()
	same := len(order) == len(again) && len(free) == len(freeAgain) && int(n) == len(order)
	for i := range min(len(order), len(again)) {
		same = same && order[i] == again[i]
	}
	return same && out == x.words.out.Load() && ends == x.words.ends.Load()
}

// Stages is how many blocks for waiting items this process keeps.
func (q *Queue[T]) Stages() int {
	q.core.staging.Lock()
	defer q.core.staging.Unlock()
	return len(q.core.stages)
}

// StrangersLease is l as another participant would have it.
func StrangersLease[T any](l Lease[T], n arena.ParticipantID) Lease[T] {
	l.state = makeQueueState(queueLeased, n, l.state.times())
	return l
}

// Object is the object under q.
func (q *Queue[T]) Object() arenakernel.Object { return q.core.object }

// SetSlot overwrites the state word of the slot at position i.
func (q *Queue[T]) SetSlot(i uint32, v uint64) { q.core.slot(i).state.Store(v) }

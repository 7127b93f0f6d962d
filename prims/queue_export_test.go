//go:build linux

package prims

import (
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Waiting returns how many goroutines sleep until there is an item, and how many sleep until there is room.
func (q *Queue[T]) Waiting() (getters, putters int) {
	for _, w := range q.core.a.Inspect(q.core.object).Waits {
		switch n := int(max(w.Count, 1)); w.For {
		case "item":
			getters += n
		case "room":
			putters += n
		}
	}
	return getters, putters
}

// Consistent reports whether the ring and the slots agree, and no call is working with a slot.
func (q *Queue[T]) Consistent() bool {
	x := q.core
	ok, items := true, 0
	for i := uint32(1); i <= x.slots; i++ {
		switch st := queueState(x.slot(i).state.Load()); st.kind() {
		case queueFree:
			ok = ok && st == 0
		case queueFull:
			ok = ok && x.published(i, st)
			items++
		case queueReturned:
			items++
		case queueLeased:
			ok = ok && st.participant() != 0
		default:
			ok = false
		}
		ok = ok && (i <= x.used() || x.slot(i).state.Load() == 0)
	}
	return ok && items == x.length()
}

// StrangersLease returns a copy of l that says that participant n has the lease.
func StrangersLease[T any](l Lease[T], n arena.ParticipantID) Lease[T] {
	l.item.st = l.item.st.with(queueLeased, n)
	return l
}

// TakeWithoutNote takes the first item on lease, but does not write the lease word. The function note writes it
// later, like a process that was stopped between these two steps.
func (q *Queue[T]) TakeWithoutNote() (note func() Lease[T], ok bool) {
	t, ok := q.core.takeLease()
	return func() Lease[T] { return q.leased(t) }, ok && t.s != nil
}

// Calls returns the number of slots with which a call of this process works. Close waits until there is none.
func (q *Queue[T]) Calls() (n int) {
	q.core.each(func(i uint32, s *queueSlot, st queueState) {
		if q.core.inCall(i, s, st) {
			n++
		}
	})
	return n
}

// Object returns the object of q.
func (q *Queue[T]) Object() arenakernel.Object { return q.core.object }

// SetSlot overwrites the state word of a slot.
func (q *Queue[T]) SetSlot(i uint32, v uint64) { q.core.slot(i).state.Store(v) }

// SetCell overwrites the cell of position p.
func (q *Queue[T]) SetCell(p, v uint64) { q.core.cell(p).Store(v) }

// SetHints overwrites the two hints at which walks along the ring begin.
func (q *Queue[T]) SetHints(head, tail uint64) {
	q.core.words.head.Store(head)
	q.core.words.tail.Store(tail)
}

// Hints returns the words that SetHints overwrites.
func (q *Queue[T]) Hints() (head, tail uint64) {
	return q.core.words.head.Load(), q.core.words.tail.Load()
}

// Slots returns the number of slots, and Cells returns the number of cells.
func (q *Queue[T]) Slots() int { return int(q.core.slots) }
func (q *Queue[T]) Cells() int { return int(q.core.mask + 1) }

// Look does what the periodic checks of a process with waiters do.
func (q *Queue[T]) Look() {
	q.core.check(&q.core.items)
	q.core.check(&q.core.room)
}

// Announce announces a waiter for an item and a waiter for room, although nobody waits.
func (q *Queue[T]) Announce() {
	q.core.items.wake.Announce()
	q.core.room.wake.Announce()
}

// Returning returns how many words of the kind queueReturning have a note.
func (q *Queue[T]) Returning() (n int) {
	for i := range q.core.words.returning {
		if q.core.words.returning[i].Load() != 0 {
			n++
		}
	}
	return n
}

// SetReturning overwrites all words of the kind queueReturning.
func (q *Queue[T]) SetReturning(v uint64) {
	for i := range q.core.words.returning {
		q.core.words.returning[i].Store(v)
	}
}

// Closing reports whether the handle q is being closed.
func (q *Queue[T]) Closing() bool { return q.core.items.queue.Closing() && q.core.room.queue.Closing() }

// PutWithoutWake puts v into q, like a Put that has not made its wake yet.
func (q *Queue[T]) PutWithoutWake(v T) bool { return q.tryPut(v) == queuePutDone }

// DropWithoutWake takes an item out of q, like a Get that has not made its wake yet.
func (q *Queue[T]) DropWithoutWake() bool {
	t, ok := q.core.take(queueTaken)
	return ok && t.s != nil && q.core.drop(t)
}

// InPlace returns the item of l in the arena.
func (l Lease[T]) InPlace() *T { return queueItem[T](l.item.s) }

package prims

import (
	"context"
	"fmt"
)

// Lease is an item that this process has on lease from a Queue. Ack removes the item from
// the Queue; Nack, or the death of the process, puts it back. A Lease is a value: one call
// on any of its copies ends it.
type Lease[T any] struct {
	// Item is a copy of the item.
	Item T
	// Attempts is how often the item was leased before without an Ack.
	Attempts int

	core  *queueCore
	at    uint32     // the slot's position
	seq   uint64     // the item's number
	state queueState // the state of the slot during this lease
}

// Lease takes the first item of q on lease, and waits until there is one. Errors are those
// of Get.
func (q *Queue[T]) Lease() (Lease[T], error) { return q.LeaseContext(context.Background()) }

// LeaseContext is Lease until ctx ends; then the error is ctx.Err().
func (q *Queue[T]) LeaseContext(ctx context.Context) (l Lease[T], err error) {
	x := q.core
	if err := x.mon.enter(ctx); err != nil {
		return l, err
	}
	i, s := x.ready()
	if s != nil {
		x.take(i, s, queueLease)
		return q.leased(i, s), nil
	}
	if err := x.begin(); err != nil {
		return l, err
	}
	defer x.finish()
	if i, s, err = x.waitItem(ctx, queueLease); err != nil {
		return l, err
	}
	return q.leased(i, s), nil
}

// TryLease takes the first item on lease if there is one and no goroutine waits for it, and
// reports whether it did.
func (q *Queue[T]) TryLease() (l Lease[T], ok bool) {
	q.core.mon.opening.use()
	x := q.core
	if !x.tryEnter(&x.getters) {
		return l, false
	}
	i, s := x.ready()
	if s == nil {
		x.mon.leave(nil)
		return l, false
	}
	x.take(i, s, queueLease)
	return q.leased(i, s), true
}

// leased makes the Lease of a slot that this process has. The caller holds the queue lock, and
// leased releases it.
func (q *Queue[T]) leased(i uint32, s *queueSlot) Lease[T] {
	st := queueState(s.state.Load())
	l := Lease[T]{core: q.core, at: i, seq: s.seq.Load(), state: st, Attempts: int(max(st.times(), 1)) - 1}
	q.core.mon.leave(nil)
	l.Item = *queueItem[T](s) // the slot is ours: nobody else uses it
	return l
}

// Ack removes the item from the Queue, which makes room. It panics if this process no longer has
// this lease, for example after an Ack or a Nack.
func (l Lease[T]) Ack() { l.core.endLease("Ack", l.at, l.seq, l.state, false) }

// Nack puts the item back into the queue, before all those that came after it. It
// panics as Ack does.
func (l Lease[T]) Nack() { l.core.endLease("Nack", l.at, l.seq, l.state, true) }

// endLease ends the lease of the item number seq in the slot at i, if st is still the
// slot's state.
func (x *queueCore) endLease(verb string, i uint32, seq uint64, st queueState, back bool) {
	if x == nil {
		panic("shmsync: " + verb + " of a Lease that is none")
	}
	if err := x.mon.enter(nil); err != nil {
		panic(err)
	}
	s := x.slot(i)
	if s == nil || queueState(s.state.Load()) != st || s.seq.Load() != seq || st.kind() != queueLeased || st.participant() != x.name {
		x.mon.leave(nil)
		panic(fmt.Sprintf("shmsync: %s of item %d of queue %s, which this process does not have on that lease", verb, seq, objectName(x.object)))
	}
	if back {
		x.giveBack(i, s, st)
		x.leave(&x.getters)
		return
	}
	x.drop(i, s, false)
	x.leave(&x.putters)
}

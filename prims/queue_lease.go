package prims

import (
	"context"
	"fmt"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

// Lease is an item that this process has on lease from a Queue. Ack removes the item from
// the Queue; Nack, or the death of the process, puts it back. A Lease is a value: one call
// on any of its copies ends it.
type Lease[T any] struct {
	// Item is a copy of the item.
	Item T
	// Attempts is how often the item was leased before, and not acknowledged.
	Attempts int

	core  *queueCore
	at    uint32     // the slot's number
	times uint64     // how often the item was leased, this time included
	state queueState // of the slot while the lease is this one
}

// Lease takes the first item of q on lease, and waits until there is one. Errors are those
// of Get.
func (q *Queue[T]) Lease() (Lease[T], error) { return q.LeaseContext(context.Background()) }

// LeaseContext is Lease until ctx ends; then the error is ctx.Err().
func (q *Queue[T]) LeaseContext(ctx context.Context) (l Lease[T], err error) {
	x := q.core
	var (
		i uint32
		s *queueSlot
	)
	if x.unclaimed() {
		i, s = x.takeAs(queueLease)
	}
	if s == nil {
		if i, s, err = x.waitItem(ctx, queueLease); err != nil {
			return l, err
		}
	}
	return q.leased(i, s), nil
}

// TryLease takes the first item on lease if there is one and no goroutine waits for it, and
// reports whether it did.
func (q *Queue[T]) TryLease() (l Lease[T], ok bool) {
	q.core.mon.opening.use()
	x := q.core
	if !x.unclaimed() && !x.reopen(&x.getters) {
		return l, false
	}
	i, s := x.takeAs(queueLease)
	if s == nil {
		return l, false
	}
	return q.leased(i, s), true
}

// leased makes the Lease of a slot that this process has.
func (q *Queue[T]) leased(i uint32, s *queueSlot) Lease[T] {
	times := s.times.Load()
	return Lease[T]{
		Item: *queueItem[T](s), core: q.core, at: i, times: times, state: queueState(s.state.Load()), Attempts: int(max(uint32(times), 1)) - 1,
	}
}

// Ack removes the item from the Queue, which makes room. It panics if this process does not
// have this lease any more, after an Ack or a Nack for example.
func (l Lease[T]) Ack() { l.core.endLease("Ack", l.at, l.times, l.state, false) }

// Nack puts the item back into the queue, before all those that came after it. It
// panics as Ack does.
func (l Lease[T]) Nack() { l.core.endLease("Nack", l.at, l.times, l.state, true) }

// endLease ends the lease of the slot at i, if st is still the slot's state and the item was
// leased that often.
func (x *queueCore) endLease(verb string, i uint32, times uint64, st queueState, back bool) {
	if x == nil {
		panic("shmsync: " + verb + " of a Lease that is none")
	}
	x.mon.opening.use()
	s := x.slot(i)
	ended := s != nil && queueState(s.state.Load()) == st && s.times.Load() == times && st.kind() == queueLeased && st.participant() == x.name
	switch {
	case ended && back:
		ended = x.giveBack(s, st)
	case ended:
		s.forget()
		race.ReleaseMerge(x.mon.key)
		// lin: the item is gone.
		// sync(queue.room): release
		ended = s.state.CompareAndSwap(uint64(st), 0)
		crashpoint.Hit("queue.drop.committed")
	}
	switch {
	case !ended:
		panic(fmt.Sprintf("shmsync: %s of item %d of queue %s, which this process does not have on that lease", verb, x.number(st), objectName(x.object)))
	case back:
		x.tellGetters()
	case !x.putters.empty():
		x.serve()
	}
}

// number is that of the item, from 1.
func (x *queueCore) number(st queueState) uint64 { return (st.tag() - x.mask) & queueTagMask }

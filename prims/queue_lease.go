package prims

import (
	"context"
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("queue.lease.noted")
	_ = crashpoint.Register("queue.lease.ended")
)

// Lease is an item of a Queue that this process works on while the Queue still keeps it. Ack removes the item from
// the Queue. Nack, or the death of the process, puts the item back. A Lease may be copied: the first Ack or Nack on
// any of the copies ends the lease. Items that come back have the order of their Puts, unless two billion later Puts
// came after the earliest of these items. A Lease outlives the handle: Ack and Nack also work after Close of the
// Queue, until the opening of the arena is closed. After Close of the Queue, each of these calls opens the Queue
// again, which costs more.
type Lease[T any] struct {
	// Item is a copy of the item.
	Item T
	// Attempts counts the earlier leases of the item, none of which was acknowledged. It stops at 65534.
	Attempts int

	core *queueCore
	item queueItemTaken
	word queueLeaseWord
}

// Lease takes the first item of q on lease, and waits until there is one. Its errors are those of Get.
func (q *Queue[T]) Lease() (Lease[T], error) { return q.LeaseContext(context.Background()) }

// LeaseContext is like Lease, but returns ctx.Err() if ctx ends while it waits.
func (q *Queue[T]) LeaseContext(ctx context.Context) (l Lease[T], err error) {
	x := q.core
	if !x.shut.Load() {
		if t, ok := x.takeLease(); ok && t.s != nil {
			x.counts.took()
			return q.leased(t), nil
		}
	}
	err = x.awaitItem(ctx, queueLeased, func(t queueItemTaken) bool {
		l = q.leased(t)
		return true
	})
	return l, err
}

// TryLease takes the first item on lease if there is one, and reports whether it did.
func (q *Queue[T]) TryLease() (l Lease[T], ok bool) {
	x := q.core
	x.opening.use()
	t, ok := x.takeLease()
	if ok && t.s == nil {
		x.checkTry(&x.items, func() { t, ok = x.takeLease() })
	}
	if !ok || t.s == nil {
		return l, false
	}
	x.counts.took()
	return q.leased(t), true
}

// takeLease takes the first item on lease. After a lease has begun, the number of items can no longer be computed
// from positions in the ring. Puts must know that before, so takeLease first calls deviate.
func (x *queueCore) takeLease() (t queueItemTaken, ok bool) {
	x.deviate()
	return x.take(queueLeased)
}

// leased returns the Lease for the item of t, which this process has just taken on lease.
func (q *Queue[T]) leased(t queueItemTaken) Lease[T] {
	w := queueLeaseWord(t.s.lease.Load()).next()
	storeWord(&t.s.lease, uint64(w))
	crashpoint.Hit("queue.lease.noted")
	return Lease[T]{Item: *queueItem[T](t.s), Attempts: int(w.times()) - 1, core: q.core, item: t, word: w}
}

// Ack removes the item from the Queue, which makes room for another item. Ack panics if this process no longer has
// the lease, for example after an earlier Ack or Nack. Ack panics with an *[shmsync.Error] that Is ErrClosed if the
// opening of the arena is closed. When a process closes its last opening of the arena, its leased items go back into
// the Queue.
func (l Lease[T]) Ack() { l.core.endLease("Ack", l.item, l.word, false) }

// Nack puts the item back into the queue, in front of all items that were put later. Nack panics as Ack does.
func (l Lease[T]) Nack() { l.core.endLease("Nack", l.item, l.word, true) }

// endLeaseTries is how often a call tries to set the bit that ends a lease. A try fails if a periodic check stores
// the date of the lease at the same time. That happens at most once, unless a peer breaks the rules.
const endLeaseTries = 4

// endLease sets the bit that ends the lease with the word w. It returns false if the slot no longer has that lease.
func (s *queueSlot) endLease(w queueLeaseWord) bool {
	was := w // in the usual case the lease is so new that no periodic check has stored its date in the word
	for range endLeaseTries {
		if s.lease.CompareAndSwap(uint64(was), uint64(was|queueLeaseEnded)) {
			return true
		}
		if was = queueLeaseWord(s.lease.Load()); was.undated() != w.undated() {
			return false
		}
	}
	return false
}

// dateLease stores the present time as the date of the lease of a slot, if the slot has a lease without a date. The
// lease may have begun before that date.
func (s *queueSlot) dateLease() {
	if w := queueLeaseWord(s.lease.Load()); w.noted() && w.date() == 0 {
		date := queueLeaseWord(firstDate(shmsync.Monotonic())) << queueLeaseDate
		s.lease.CompareAndSwap(uint64(w), uint64(w|date))
	}
}

// leaseSince returns a time at which the lease of a slot in state st had already begun, or 0 if no such time is known.
// The last parameter is the present time or, for a copy of the arena, the time at which the copy was made.
func (s *queueSlot) leaseSince(st queueState, w queueLeaseWord, now int64) int64 {
	if !w.noted() || queueLeaseWord(s.lease.Load()) != w || queueState(s.state.Load()) != st {
		return 0
	}
	return firstSince(w.date(), now)
}

// reopened returns a new handle on the Queue of x, because the handle x is closed. It panics if the opening of the
// arena is closed, or if a peer has damaged the Queue.
func (x *queueCore) reopened() *queueCore {
	y, err := handleAt((*arena.Arena)(x.a), x.object.Offset, "queue.open", queueKind, queueVersion, queueHeadBytes,
		func(a *arenakernel.Arena, o arenakernel.Object) (*queueCore, error) { return buildQueue(a, o, false) })
	switch {
	case errors.Is(err, shmsync.ErrClosed):
		panic(x.opening.refusal)
	case err != nil:
		panic(err)
	}
	return y
}

// endLease ends a lease for the method Ack or Nack, whose name is the parameter verb. If back is true, endLease puts
// the item back. It panics if the lease has already ended. If several calls try to end the lease at the same time, only
// the call that sets the bit queueLeaseEnded succeeds.
func (x *queueCore) endLease(verb string, t queueItemTaken, w queueLeaseWord, back bool) {
	if x == nil {
		panic("shmsync: " + verb + " of a Lease that is none")
	}
	call, ok := x.opening.tryServe(x.items.queue)
	if !ok {
		// The handle is closed. The Queue exists, because nobody can delete a Queue with a lease of a living process.
		x = x.reopened()
		defer x.opening.close("queue.close")
		call = x.opening.serve(x.items.queue)
		t.s = x.slot(t.i)
	}
	defer call.end()
	s := t.s
	ended := s != nil && queueState(s.state.Load()) == t.st && t.st.participant() == x.name && s.endLease(w)
	if ended {
		crashpoint.Hit("queue.lease.ended")
		if back {
			ended = x.giveBack(t.i, t.st, func(from, to queueState) bool { return s.state.CompareAndSwap(uint64(from), uint64(to)) })
		} else {
			ended = x.drop(t)
		}
	}
	switch {
	case !ended:
		panic(fmt.Sprintf("shmsync: %s of item %d of queue %s, which this process does not have on that lease", verb, x.number(t.st), objectName(x.object)))
	case back:
		x.tell(&x.items, 1)
	default:
		x.tell(&x.room, 1)
	}
}

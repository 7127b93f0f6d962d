package prims

import (
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("queue.add.claimed")
	_ = crashpoint.Register("queue.add.written")
	_ = crashpoint.Register("queue.add.committed")
	_ = crashpoint.Register("queue.take.committed")
	_ = crashpoint.Register("queue.drop.committed")
	_ = crashpoint.Register("queue.back.noted")
	_ = crashpoint.Register("queue.back.committed")
)

// queueClaim is the slot s, with the number i, that a Put has reserved for its item. The item is to enter the ring at
// the position p. A queueClaim also has the word that the Put read from the cell of p when it found that p was not
// filled.
type queueClaim struct {
	p, was uint64
	i      uint32
	s      *queueSlot
}

// claim reserves a slot for an item. If there is no room, the result has no slot. ok is false only if a peer has
// overwritten the ring.
func (x *queueCore) claim() (c queueClaim, ok bool) {
	for healed := false; ; {
		// The loop repeats only if another Put has filled the position meanwhile, and once after heal.
		p, was, ok := x.next()
		full := false
		if ok {
			full, ok = x.full(p)
		}
		if !ok {
			if healed {
				return c, false
			}
			healed = true
			x.heal()
			continue
		}
		if !full {
			if i, s := x.claimSlot(p); s != nil {
				return queueClaim{p, was, i, s}, true
			}
		}
		// This iteration has found no room. Only a Put that fills position p adds an item, and p is still not filled.
		// So there was no room at the beginning of this iteration either.
		if x.cell(p).Load() == was {
			return c, true
		}
	}
}

// claimSlot reserves a free slot for this process. It first tries the slot that is probably free for position p. It
// reserves none if Close does not wait for this call; see awaitCalls.
func (x *queueCore) claimSlot(p uint64) (uint32, *queueSlot) {
	i := uint32(p-x.firstPosition())%x.slots + 1
	for range x.slots {
		s := x.slot(i)
		if s.state.Load() == 0 {
			if i > uint32(x.words.used.Load()) {
				x.use(i)
			}
			// sync(queue.room): acquire
			if s.state.CompareAndSwap(0, uint64(makeQueueState(queueClaimed, x.name, 0))) {
				if x.drained.Load() {
					x.unclaim(s)
					return 0, nil
				}
				crashpoint.Hit("queue.add.claimed")
				race.Acquire(x.key)
				if w := queueLeaseWord(s.lease.Load()); w != w.fresh() {
					storeWord(&s.lease, uint64(w.fresh()))
				}
				return i, s
			}
		}
		if i++; i > x.slots {
			i = 1
		}
	}
	return 0, nil
}

// queueUse is the number of slots by which a Put raises queueWords.used at a time.
const queueUse = 64

// use raises queueWords.used to at least i. It is called before slot i is reserved for an item, because reapers and
// periodic checks do not visit slots with a number greater than used.
func (x *queueCore) use(i uint32) {
	to := min((uint64(i)+queueUse-1)&^(queueUse-1), uint64(x.slots))
	for {
		// If the CAS fails, another Put has raised the word. The word never falls, so the loop is finite.
		n := x.words.used.Load()
		if n >= uint64(i) || x.words.used.CompareAndSwap(n, to) {
			return
		}
	}
}

// queuePutResult is the result of the method publish.
type queuePutResult uint8

const (
	queuePutDone queuePutResult = iota
	queuePutNoRoom
	queuePutStopped
	queuePutCorrupt
)

// publish puts the item of the claim c into the queue, at position c.p or at a later position. If the result is not
// queuePutDone, publish has freed the slot.
func (x *queueCore) publish(c queueClaim) queuePutResult {
	race.ReleaseMerge(x.key)
	p, was, s := c.p, c.was, c.s
	for {
		// Check once more that the position is not filled. Another Put may have filled it before this call reserved
		// the slot, perhaps even with an item in this slot. With the tag stored below, a Get would then take the slot
		// for the item of that position. After this check, no other call can fill a cell with this slot.
		if x.cell(p).Load() == was {
			storeWord(&s.state, uint64(makeQueueState(queueFull, x.name, p)))
			crashpoint.Hit("queue.add.written")
			// A call must not store anything after it has taken effect; see the method done. So the hint tail is
			// stored before the CAS.
			storeWord(&x.words.tail, p)
			// lin: the item is in the queue.
			// sync(queue.put): release
			if x.cell(p).CompareAndSwap(was, uint64(makeQueueCell(x.lap(p), c.i))) {
				crashpoint.Hit("queue.add.committed")
				if x.words.flags.Load()&queueStoppedFlag != 0 && x.retract(p, s) {
					return queuePutStopped
				}
				return queuePutDone
			}
		}
		// Another Put has filled the position. So whenever this loop repeats, some Put has succeeded.
		var full, ok bool
		if p, was, ok = x.next(); ok {
			full, ok = x.full(p)
		}
		if !ok || full {
			x.unclaim(s)
			if !ok {
				return queuePutCorrupt
			}
			return queuePutNoRoom
		}
	}
}

// unclaim frees a slot that this call has reserved. If this process has left the arena meanwhile, the slot is already
// taken back, and unclaim does nothing. If the opening of the handle has ended meanwhile, unclaim makes no wake, because
// the words of the wake may belong to another object. A waiter then finds the slot by its periodic check.
func (x *queueCore) unclaim(s *queueSlot) {
	if st := queueState(s.state.Load()); st.participant() == x.name && s.state.CompareAndSwap(uint64(st), 0) {
		x.done(&x.room, 0) // a Put that found no free slot may wait
	}
}

// retract removes the item at position p, because it was put after Shutdown. It returns false if a Get has already
// taken the item, or if the handle has been closed since the item was put.
func (x *queueCore) retract(p uint64, s *queueSlot) bool {
	call, ok := x.opening.tryServe(x.room.queue)
	if !ok {
		return false
	}
	defer call.end()
	x.deviate()
	return s.state.CompareAndSwap(uint64(makeQueueState(queueFull, x.name, p)), 0)
}

// queueItemTaken is an item that a participant has taken or leased, with its slot.
type queueItemTaken struct {
	i  uint32
	s  *queueSlot
	st queueState
}

// take takes the first item for this process. k is queueTaken for a Get, and queueLeased for a lease. If there is no
// item, or if Close does not wait for this call, the result has no slot. ok is false only if a peer has overwritten the
// ring.
func (x *queueCore) take(k queueSlotKind) (t queueItemTaken, ok bool) {
	race.ReleaseMerge(x.key)
	for {
		// The loop repeats only if another participant has put, taken or returned an item meanwhile, and after
		// takeReturned has found that no item was put back.
		back := queueReturns(x.words.returned.Load())
		if back.some() {
			if t := x.takeReturned(back, k); t.s != nil {
				if x.drained.Load() {
					return x.untake(t), true
				}
				return t, true
			}
			continue
		}
		f, ok := x.front()
		switch {
		case !ok:
			return t, false
		case queueReturns(x.words.returned.Load()) != back:
		case f.s == nil:
			if !x.filled(f.p) {
				return t, true
			}
		default:
			st := f.st.with(k, x.name)
			// lin: if the CAS succeeds, the take counts as done at the second load of words.returned. At that moment no
			// position before p has an item, position p has one (until the CAS), and no item has been put back.
			// sync(queue.put): acquire
			if f.s.state.CompareAndSwap(uint64(f.st), uint64(st)) {
				if x.drained.Load() {
					return x.untake(queueItemTaken{f.i, f.s, st}), true
				}
				crashpoint.Hit("queue.take.committed")
				storeWord(&x.words.head, f.p+1)
				race.Acquire(x.key)
				return queueItemTaken{f.i, f.s, st}, true
			}
		}
	}
}

// untake puts back an item that this call has taken beside a Close that does not wait for it, and returns no item. If
// this process has left the arena meanwhile, the item may be in the queue already. Then untake changes nothing, unless the
// state of the slot changes between its load and the compare-and-swap. Wakes are as in the method unclaim.
func (x *queueCore) untake(t queueItemTaken) (none queueItemTaken) {
	swap := func(from, to queueState) bool { return t.s.state.CompareAndSwap(uint64(from), uint64(to)) }
	if queueState(t.s.state.Load()) == t.st && x.giveBack(t.i, t.st, swap) {
		x.done(&x.items, 0) // a Get that found no item may wait
	}
	return none
}

// drop frees the slot of an item that was copied or acknowledged. It returns false if this process has left the arena
// meanwhile. In that case the item is in the queue again.
func (x *queueCore) drop(t queueItemTaken) bool {
	race.ReleaseMerge(x.key)
	// lin: the item of a lease is gone.
	// sync(queue.room): release
	if !t.s.state.CompareAndSwap(uint64(t.st), 0) {
		return false
	}
	crashpoint.Hit("queue.drop.committed")
	return true
}

// giveBack puts the item of slot i, whose state is st, back to the front of the queue. The function swap is the
// compare-and-swap that changes the state. giveBack returns false if the state is no longer st.
func (x *queueCore) giveBack(i uint32, st queueState, swap func(from, to queueState) bool) bool {
	x.deviate()
	race.ReleaseMerge(x.key)
	s := x.slot(i)
	if w := queueLeaseWord(s.lease.Load()); st.kind() == queueLeased && !w.ended() && queueState(s.state.Load()) == st {
		s.endLease(w) // without this, the next lease would get the date of a lease that a death has ended
	}
	defer x.noteReturn(i).end()
	crashpoint.Hit("queue.back.noted")
	// sync(queue.back): release
	if !swap(st, st.with(queueReturned, queueReturns(x.words.returned.Load()).count())) {
		return false
	}
	crashpoint.Hit("queue.back.committed")
	x.tellReturned()
	return true
}

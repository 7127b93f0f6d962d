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
	_ = crashpoint.Register("queue.back.committed")
)

// queueClaim is a slot that a Put has claimed, and a position that was not filled then.
type queueClaim struct {
	p, was uint64
	i      uint32
	s      *queueSlot
}

// claim claims a slot for an item. s is nil if there is no room. It fails only if a peer overwrote the ring.
func (x *queueCore) claim() (c queueClaim, ok bool) {
	for healed := false; ; {
		// Another round begins only if another Put has filled the position, or once, after heal.
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
		// The number of items does not grow while the position is not filled. So there was no room at the
		// beginning of this round.
		if x.cell(p).Load() == was {
			return c, true
		}
	}
}

// claimSlot claims a free slot. Its search begins with the slot that is probably free for position p.
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

// queueUse is the number of slots by which the word used grows at a time.
const queueUse = 64

// use is called before slot i is claimed. It makes the word used cover the slot.
func (x *queueCore) use(i uint32) {
	to := min((uint64(i)+queueUse-1)&^(queueUse-1), uint64(x.slots))
	for {
		// The loop ends: the word only grows.
		n := x.words.used.Load()
		if n >= uint64(i) || x.words.used.CompareAndSwap(n, to) {
			return
		}
	}
}

// The results of publish.
type queuePutResult uint8

const (
	queuePutDone queuePutResult = iota
	queuePutNoRoom
	queuePutStopped
	queuePutCorrupt
)

// publish puts the item of a claimed slot into the queue, at the position of the claim or a later
// one. If it does not, the slot is free again.
func (x *queueCore) publish(c queueClaim) queuePutResult {
	race.ReleaseMerge(x.key)
	p, was, s := c.p, c.was, c.s
	for {
		// Check the position once more: it may have been filled before this call had the slot, perhaps even
		// with this slot. In that case the new tag would make the slot an item that a Get takes. From now on
		// nobody else fills a cell with this slot.
		if x.cell(p).Load() == was {
			storeWord(&s.state, uint64(makeQueueState(queueFull, x.name, p)))
			crashpoint.Hit("queue.add.written")
			// lin: the item is in the queue.
			// sync(queue.put): release
			if x.cell(p).CompareAndSwap(was, uint64(makeQueueCell(x.lap(p), c.i))) {
				crashpoint.Hit("queue.add.committed")
				storeWord(&x.words.tail, p+1)
				if x.words.flags.Load()&queueStoppedFlag != 0 && x.retract(p, s) {
					return queuePutStopped
				}
				return queuePutDone
			}
		}
		// Another round begins only if another Put has filled the position.
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

// unclaim makes a slot free that this call has claimed, unless this process has left and its slots were taken back.
func (x *queueCore) unclaim(s *queueSlot) {
	if st := queueState(s.state.Load()); st.participant() == x.name && s.state.CompareAndSwap(uint64(st), 0) {
		x.tell(&x.room, 1) // another Put may have found no free slot
	}
}

// retract takes back the item at position p, which was put after Shutdown. It reports false if a Get has taken
// the item.
func (x *queueCore) retract(p uint64, s *queueSlot) bool {
	x.deviate()
	return s.state.CompareAndSwap(uint64(makeQueueState(queueFull, x.name, p)), 0)
}

// queueItemTaken is an item that this call has taken, or that is on lease.
type queueItemTaken struct {
	i  uint32
	s  *queueSlot
	st queueState
}

// take takes the first item for this process; k says whether for a Get or on lease. s is nil if there is none.
// It fails only if a peer overwrote the ring.
func (x *queueCore) take(k queueSlotKind) (t queueItemTaken, ok bool) {
	race.ReleaseMerge(x.key)
	for {
		// Another round begins only if another participant has put, taken or returned an item, or if takeReturned
		// has found no returned item and has cleared the bit that tells of them.
		back := queueReturns(x.words.returned.Load())
		if back.some() {
			if t := x.takeReturned(back, k); t.s != nil {
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
			// lin: with the load of returned, if the CAS succeeds: no position before p has an
			// item, p has one until then, and none has come back.
			// sync(queue.put): acquire
			if f.s.state.CompareAndSwap(uint64(f.st), uint64(st)) {
				crashpoint.Hit("queue.take.committed")
				storeWord(&x.words.head, f.p+1)
				race.Acquire(x.key)
				return queueItemTaken{f.i, f.s, st}, true
			}
		}
	}
}

// drop frees the slot of an item that was copied or acknowledged. It reports false if this process has left
// meanwhile, and the item was taken back.
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

// giveBack puts the item of slot s, in state st, back to the front of the queue. It reports false if the state
// has changed.
func (x *queueCore) giveBack(s *queueSlot, st queueState, swap func(from, to queueState) bool) bool {
	x.deviate()
	race.ReleaseMerge(x.key)
	if w := queueLeaseWord(s.lease.Load()); st.kind() == queueLeased && !w.ended() && queueState(s.state.Load()) == st {
		s.endLease(w) // the lease of a participant that died or has left; the next lease has a date of its own
	}
	// sync(queue.back): release
	if !swap(st, st.with(queueReturned, queueReturns(x.words.returned.Load()).count())) {
		return false
	}
	crashpoint.Hit("queue.back.committed")
	x.tellReturned()
	return true
}

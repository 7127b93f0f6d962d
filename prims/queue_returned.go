package prims

import (
	"sync"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

// returnedSlots has the first returned slots of a Queue, as a search of all slots has found them. While the
// word that counts returns is unchanged, no slot has become returned since. So the first of these slots that is
// still returned is the first of all returned slots. Each handle has a returnedSlots of its own.
type returnedSlots struct {
	mu    sync.Mutex // a call does not wait for it, but searches all slots itself
	at    queueReturns
	slots []queueItemTaken // in order; made by the first search
	from  int              // slots before this one are no longer returned
	to    int
	all   bool // there were no others
}

// look searches the slots of x for the first returned ones.
func (r *returnedSlots) look(x *queueCore, back queueReturns) {
	if r.slots == nil {
		r.slots = make([]queueItemTaken, 64)
	}
	r.at, r.from, r.to, r.all = back, 0, 0, true
	x.each(func(i uint32, s *queueSlot, st queueState) {
		if st.kind() != queueReturned {
			return
		}
		if r.to == len(r.slots) {
			r.all = false
			if !st.before(r.slots[r.to-1].st) {
				return
			}
			r.to--
		}
		n := r.to
		for ; n > 0 && st.before(r.slots[n-1].st); n-- {
			r.slots[n] = r.slots[n-1]
		}
		r.slots[n] = queueItemTaken{i, s, st}
		r.to++
	})
}

// first is the first returned slot of x. Its s is nil if there is none.
func (r *returnedSlots) first(x *queueCore, back queueReturns) queueItemTaken {
	if r.at != back {
		r.look(x, back)
	}
	for {
		// Another round begins only if other participants have taken every slot that the last search found. So
		// the loop is lock-free: each round means that others have made progress.
		for ; r.from < r.to; r.from++ {
			if t := r.slots[r.from]; queueState(t.s.state.Load()) == t.st {
				return t
			}
		}
		if r.all {
			return queueItemTaken{}
		}
		r.look(x, back)
	}
}

// firstReturned is the first returned slot, if none has come back since the count of returns was back.
func (x *queueCore) firstReturned(back queueReturns) (t queueItemTaken) {
	if x.back.mu.TryLock() {
		defer x.back.mu.Unlock()
		return x.back.first(x, back)
	}
	x.each(func(i uint32, s *queueSlot, st queueState) {
		if st.kind() == queueReturned && (t.s == nil || st.before(t.st)) {
			t = queueItemTaken{i, s, st}
		}
	})
	return t
}

// takeReturned is take for the items that came back. If there is no such item, it clears the bit that tells
// Gets of them, unless an item has come back meanwhile.
func (x *queueCore) takeReturned(back queueReturns, k queueSlotKind) queueItemTaken {
	t := x.firstReturned(back)
	switch {
	case t.s == nil:
		x.words.returned.CompareAndSwap(uint64(back), uint64(back&^1))
	case queueReturns(x.words.returned.Load()) != back:
	default:
		st := t.st.with(k, x.name)
		// lin: with the load of returned, if the CAS succeeds.
		// sync(queue.back): acquire
		if t.s.state.CompareAndSwap(uint64(t.st), uint64(st)) {
			crashpoint.Hit("queue.take.committed")
			race.Acquire(x.key)
			t.st = st
			return t
		}
	}
	return queueItemTaken{}
}

// tellReturned tells Gets that items may have come back.
func (x *queueCore) tellReturned() {
	for {
		// Another round begins only if another call has changed the word.
		w := x.words.returned.Load()
		// lin: the item is in the queue again.
		if x.words.returned.CompareAndSwap(w, uint64(queueReturns(w).told())) {
			return
		}
	}
}

package prims

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

// returnedSlots lists the first returned slots of a Queue, at most 64, as a search of all slots has found them. A slot
// is returned if its item was put back. The word queueReturns counts the returns. While that word is unchanged, no
// further item has come back, so a call can use the list instead of a search. Each handle has a returnedSlots of its
// own.
type returnedSlots struct {
	mu    sync.Mutex // no call waits for mu: if mu is locked, the call searches all slots itself
	at    queueReturns
	slots []queueItemTaken // in the order of their items; allocated by the first search
	from  int              // the slots before slots[from] are no longer returned
	to    int
	all   bool // the search found no other returned slots
}

// later returns a position after those of all items that a search of the slots finds, even if other calls put items
// during the search. The method before of queueState needs such a position: it orders items by their tags, if they
// were put less than two billion positions before.
func (x *queueCore) later() uint64 {
	p, _, ok := x.next() // queueWords.tail would not do: it may be less than the position of an item
	if !ok {
		p = x.words.tail.Load() // a peer has overwritten the ring, so the items have no order
	}
	return p + queueLater
}

// queueLater is more than the number of Puts that succeed while a call searches the slots.
const queueLater = 1 << 24

// look searches all slots of x, and stores the first returned slots in r. The second parameter is the value that the
// caller has read from queueWords.returned.
func (r *returnedSlots) look(x *queueCore, back queueReturns) {
	if r.slots == nil {
		r.slots = make([]queueItemTaken, 64)
	}
	r.at, r.from, r.to, r.all = back, 0, 0, true
	later := x.later()
	x.each(func(i uint32, s *queueSlot, st queueState) {
		if st.kind() != queueReturned {
			return
		}
		if r.to == len(r.slots) {
			r.all = false
			if !st.before(r.slots[r.to-1].st, later) {
				return
			}
			r.to--
		}
		n := r.to
		for ; n > 0 && st.before(r.slots[n-1].st, later); n-- {
			r.slots[n] = r.slots[n-1]
		}
		r.slots[n] = queueItemTaken{i, s, st}
		r.to++
	})
}

// first returns the first slot of x whose item was put back, or no slot if there is none.
func (r *returnedSlots) first(x *queueCore, back queueReturns) queueItemTaken {
	if r.at != back {
		r.look(x, back)
	}
	for {
		// The loop repeats only if other participants have taken all items that the search has found. So this method is
		// lock-free.
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

// firstReturned returns the first slot whose item was put back. The parameter is the value that the caller has read
// from queueWords.returned. The result is right only if the word still has this value afterwards.
func (x *queueCore) firstReturned(back queueReturns) (t queueItemTaken) {
	if x.back.mu.TryLock() {
		defer x.back.mu.Unlock()
		return x.back.first(x, back)
	}
	later := x.later()
	x.each(func(i uint32, s *queueSlot, st queueState) {
		if st.kind() == queueReturned && (t.s == nil || st.before(t.st, later)) {
			t = queueItemTaken{i, s, st}
		}
	})
	return t
}

// takeReturned takes the first of the items that were put back. If there is none, it clears the bit in queueReturns,
// so that Gets do not search. It does not clear the bit if an item has been put back meanwhile.
func (x *queueCore) takeReturned(back queueReturns, k queueSlotKind) queueItemTaken {
	t := x.firstReturned(back)
	switch {
	case t.s == nil:
		x.words.returned.CompareAndSwap(uint64(back), uint64(back&^1))
	case queueReturns(x.words.returned.Load()) != back:
	default:
		st := t.st.with(k, x.name)
		// lin: if the CAS succeeds, the take counts as done at the load of words.returned.
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

// returnNote is a note that this participant is about to put an item back. The note is in a word of the kind
// queueReturning.
type returnNote struct {
	word *atomic.Uint64 // nil if there is no note
	note queueReturning
}

// noteReturn notes that this participant is about to put the item of slot i back.
func (x *queueCore) noteReturn(i uint32) returnNote {
	if x.slots > checkMost {
		note := makeQueueReturning(x.name, i)
		for k := range x.words.returning {
			if w := &x.words.returning[k]; w.Load() == 0 && w.CompareAndSwap(0, uint64(note)) {
				return returnNote{w, note}
			}
		}
	}
	return returnNote{}
}

// end removes the note.
func (n returnNote) end() {
	if n.word != nil {
		n.word.CompareAndSwap(uint64(n.note), 0)
	}
}

// checkReturning examines the notes of all participants. If the item of a note has come back, and Gets do not search
// for returned items, checkReturning makes them search. It also frees the notes of dead participants.
func (x *queueCore) checkReturning() {
	for k := range x.words.returning {
		w := &x.words.returning[k]
		note := queueReturning(w.Load())
		if note == 0 {
			continue
		}
		if s := x.slot(note.slot()); s != nil && queueState(s.state.Load()).kind() == queueReturned && !queueReturns(x.words.returned.Load()).some() {
			x.tellReturned()
		}
		if !x.a.Current(note.participant()) {
			w.CompareAndSwap(uint64(note), 0)
		}
	}
}

// tellReturned makes Gets search for items that were put back: it sets the bit in queueReturns, and adds 1 to the
// count.
func (x *queueCore) tellReturned() {
	for {
		// If the CAS fails, another process has changed the word. So the loop is lock-free.
		w := x.words.returned.Load()
		// lin: the item is in the queue again.
		if x.words.returned.CompareAndSwap(w, uint64(queueReturns(w).told())) {
			return
		}
	}
}

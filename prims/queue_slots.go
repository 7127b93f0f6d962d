package prims

import (
	"slices"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("queue.add.written")
	_ = crashpoint.Register("queue.add.committed")
	_ = crashpoint.Register("queue.take.committed")
	_ = crashpoint.Register("queue.drop.committed")
	_ = crashpoint.Register("queue.back.committed")
)

// The functions below are called with the queue lock held. Each changes the truth by one store,
// of the state word; the later stores change the index.

// first returns the slot of the first item in the queue, or nil if there is none.
func (x *queueCore) first() (i uint32, s *queueSlot) {
	return x.expect(queuePair(x.words.ends.Load()).low(), queueFull)
}

// spare returns a free slot, or nil if there is none.
func (x *queueCore) spare() (i uint32, s *queueSlot) {
	return x.expect(queuePair(x.words.free.Load()).low(), queueFree)
}

// expect returns the slot at a position that was read from the index. If the slot is not of that
// kind, the index is rebuilt before the queue lock is released.
func (x *queueCore) expect(i uint32, k queueSlotKind) (uint32, *queueSlot) {
	if i == 0 {
		return 0, nil
	}
	s := x.slot(i)
	if s == nil || queueState(s.state.Load()).kind() != k {
		x.mon.broken.Store(true)
		return 0, nil
	}
	return i, s
}

// add puts the item that was written to the free slot at i into the queue.
func (x *queueCore) add(i uint32, s *queueSlot) {
	x.number(s)
	crashpoint.Hit("queue.add.written")
	// lin: the item is in the queue.
	storeWord(&s.state, uint64(makeQueueState(queueFull, 0, 0)))
	crashpoint.Hit("queue.add.committed")
	x.unspare(i, s)
	x.append(i, s)
}

// number gives the item in s the last number.
func (x *queueCore) number(s *queueSlot) {
	n := x.words.sequence.Load() + 1
	storeWord(&x.words.sequence, n)
	storeWord(&s.seq, n)
}

// take gives the item at i, in the queue, to this process.
func (x *queueCore) take(i uint32, s *queueSlot, class uint16) queueState {
	st := queueState(s.state.Load()).to(class, x.name)
	// lin: the item is ours.
	storeWord(&s.state, uint64(st))
	crashpoint.Hit("queue.take.committed")
	x.unlink(i, s)
	storeWord(&x.words.out, x.words.out.Load()+1)
	return st
}

// drop makes the slot at i free: its item was copied or acknowledged. The slot was in the queue
// or out.
func (x *queueCore) drop(i uint32, s *queueSlot, inQueue bool) {
	// lin: the item is gone.
	storeWord(&s.state, 0)
	crashpoint.Hit("queue.drop.committed")
	if inQueue {
		x.unlink(i, s)
	} else {
		storeWord(&x.words.out, x.words.out.Load()-1)
	}
	f := queuePair(x.words.free.Load())
	storeWord(&s.next, uint64(f.low()))
	storeWord(&x.words.free, makeQueuePair(i, f.high()))
}

// giveBack puts the item at i, which is out, back in its place in the queue.
func (x *queueCore) giveBack(i uint32, s *queueSlot, st queueState) {
	// lin: the item is in the queue again.
	storeWord(&s.state, uint64(st.back()))
	crashpoint.Hit("queue.back.committed")
	storeWord(&x.words.out, x.words.out.Load()-1)
	x.insert(i, s)
}

// append links the slot at i as the last of the queue.
func (x *queueCore) append(i uint32, s *queueSlot) {
	storeWord(&s.next, 0)
	first := i
	if e := queuePair(x.words.ends.Load()); e.high() != 0 {
		if last := x.slot(e.high()); last != nil {
			first = e.low()
			storeWord(&last.next, uint64(i))
		} else {
			x.mon.broken.Store(true)
		}
	}
	storeWord(&x.words.ends, makeQueuePair(first, i))
	x.count(1)
}

// count adds to the number of items in the queue.
func (x *queueCore) count(d uint32) {
	f := queuePair(x.words.free.Load())
	storeWord(&x.words.free, makeQueuePair(f.low(), f.high()+d))
}

// unspare takes the slot at i off the list of free ones. Except after a death, it is the first of
// the list.
func (x *queueCore) unspare(i uint32, s *queueSlot) {
	f, next := queuePair(x.words.free.Load()), uint32(s.next.Load())
	if f.low() == i {
		storeWord(&x.words.free, makeQueuePair(next, f.high()))
		return
	}
	if before := x.before(f.low(), i); before != nil {
		storeWord(&before.next, uint64(next))
	}
}

// unlink takes the slot at i out of the queue. Except after a death, it is the first of the
// queue.
func (x *queueCore) unlink(i uint32, s *queueSlot) {
	e, next := queuePair(x.words.ends.Load()), uint32(s.next.Load())
	first, last := e.low(), e.high()
	if first == i {
		if first = next; next == 0 {
			last = 0
		}
	} else if before := x.before(first, i); before != nil {
		storeWord(&before.next, uint64(next))
		if last == i {
			x.mon.broken.Store(true) // the rebuild finds the last slot
		}
	}
	storeWord(&x.words.ends, makeQueuePair(first, last))
	x.count(^uint32(0))
}

// before returns the slot whose next slot is at i, in the list that begins at from.
func (x *queueCore) before(from, i uint32) *queueSlot {
	for range x.capacity {
		s := x.slot(from)
		if s == nil {
			break
		}
		if from = uint32(s.next.Load()); from == i {
			return s
		}
	}
	x.mon.broken.Store(true)
	return nil
}

// insert links the slot at i into the queue at the place of its number, which is usually the
// front.
func (x *queueCore) insert(i uint32, s *queueSlot) {
	e, seq := queuePair(x.words.ends.Load()), s.seq.Load()
	if last := x.slot(e.high()); last == nil || last.seq.Load() < seq {
		x.append(i, s)
		return
	}
	var before *queueSlot
	at := e.low()
	for range x.capacity {
		t := x.slot(at)
		if t == nil {
			x.mon.broken.Store(true) // the slot has become the last one: the rebuild records that
			break
		}
		if t.seq.Load() > seq {
			break
		}
		before, at = t, uint32(t.next.Load())
	}
	storeWord(&s.next, uint64(at))
	if before != nil {
		storeWord(&before.next, uint64(i))
	} else {
		storeWord(&x.words.ends, makeQueuePair(i, e.high()))
	}
	x.count(1)
}

// index rebuilds the order, the free list and the counts from the slots.
func (x *queueCore) index() {
	type numbered struct {
		seq uint64
		i   uint32
	}
	var full []numbered
	free, out := uint32(0), uint64(0)
	sequence := x.words.sequence.Load()
	for i := x.capacity; i > 0; i-- {
		s := x.slot(i)
		st := queueState(s.state.Load())
		if !st.valid() {
			st = 0 // a peer wrote the state
			storeWord(&s.state, 0)
		}
		switch {
		case st.kind() == queueFree:
			storeWord(&s.next, uint64(free))
			free = i
			continue
		case st.kind() == queueFull:
			full = append(full, numbered{s.seq.Load(), i})
		default:
			out++
		}
		sequence = max(sequence, s.seq.Load())
	}
	slices.SortFunc(full, func(a, b numbered) int {
		switch {
		case a.seq < b.seq:
			return -1
		case a.seq > b.seq:
			return 1
		}
		return int(a.i) - int(b.i)
	})
	storeWord(&x.words.sequence, sequence)
	storeWord(&x.words.out, out)
	storeWord(&x.words.free, makeQueuePair(free, 0))
	storeWord(&x.words.ends, 0)
	for _, f := range full {
		x.append(f.i, x.slot(f.i))
	}
}

// held iterates over the items that participants have. It works without the queue lock.
func (x *queueCore) held(f func(i uint32, s *queueSlot, st queueState)) {
	if x.words.out.Load() == 0 {
		return
	}
	for i := uint32(1); i <= x.capacity; i++ {
		s := x.slot(i)
		if st := queueState(s.state.Load()); st.out() {
			f(i, s, st)
		}
	}
}

// holders calls f for the participants whose death would bring items back.
func (x *queueCore) holders(f func(arenakernel.ParticipantID)) {
	last := arenakernel.ParticipantID(0)
	x.held(func(_ uint32, _ *queueSlot, st queueState) {
		if n := st.participant(); n != last {
			f(n)
			last = n
		}
	})
}

// reap puts back the items that dead participants had.
func (x *queueCore) reap(dead func(arenakernel.ParticipantID) bool) {
	x.held(func(i uint32, s *queueSlot, st queueState) {
		if dead(st.participant()) && x.mon.ended(st.participant()) {
			x.giveBack(i, s, st)
		}
	})
}

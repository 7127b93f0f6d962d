package prims

import "sync/atomic"

// The functions below take no lock. A participant that is stopped in the middle of one keeps a
// slot, and nothing else.

// lap is the lap of position p.
func (x *queueCore) lap(p uint64) uint32 { return uint32(p >> x.shift) }

// firstPosition is the position of the first item that a Queue has had. The lap of all-zero cells is 0.
func (x *queueCore) firstPosition() uint64 { return x.mask + 1 }

// filled reports whether position p was filled. The positions of lap 0 are those of all-zero cells.
func (x *queueCore) filled(p uint64) bool {
	return int32(queueCell(x.cell(p).Load()).lap()-x.lap(p)) >= 0
}

// regular reports whether the positions tell how many items there are.
func (x *queueCore) regular() bool { return x.words.flags.Load()&queueIrregularFlag == 0 }

// deviate records that the positions no longer tell how many items there are.
func (x *queueCore) deviate() {
	if x.regular() {
		x.words.flags.Or(queueIrregularFlag)
	}
}

// stopped reports whether the queue was shut down.
func (x *queueCore) stopped() bool {
	// sync(queue.shutdown): acquire
	return x.words.flags.Load()&queueStoppedFlag != 0
}

const (
	// queueWalk is how many steps a walk may take beyond the cells of two laps, because other participants may
	// go on meanwhile.
	queueWalk = 1000
	// queueWalks is how many walks in a row may find nothing although no process moves a hint. After that, walk
	// concludes that a peer has overwritten the ring.
	queueWalks = 16
)

// walk calls step with positions, from the hint on, until step returns false as its second result.
// The first result is the next position, or 0 if the ring is in a state that no correct process
// makes. walk reports false if a peer overwrote the ring.
func (x *queueCore) walk(hint *atomic.Uint64, step func(p uint64) (next uint64, more bool)) bool {
	for walks := 0; walks < queueWalks; walks++ {
		tail, head := x.words.tail.Load(), x.words.head.Load()
		p := max(hint.Load(), x.firstPosition())
		for n := uint64(0); n < 2*x.mask+queueWalk; n++ {
			next, more := step(p)
			if !more {
				return true
			}
			if next == 0 {
				break
			}
			p = next
		}
		if tail != x.words.tail.Load() || head != x.words.head.Load() {
			walks = 0 // the others went on, and overtook this walk
		}
		x.heal()
	}
	return false
}

// heal makes the hints anew. They may lag behind afterwards.
func (x *queueCore) heal() {
	lap := uint64(queueCell(x.cell(0).Load()).lap()) // all laps differ by one at most
	// Laps start again after 2^32. The 2^32 laps that are added here make sure that the position comes after
	// those of all-zero cells.
	p := (lap + 1<<32) << x.shift
	x.words.head.Store(p - x.mask)
	x.words.tail.Store(p)
	x.seen.Store(0)
}

// next finds the first position that is not filled, and the word of its cell. It fails only if a
// peer overwrote the ring.
func (x *queueCore) next() (p, was uint64, ok bool) {
	// The usual case, without a walk.
	if p = x.words.tail.Load(); p >= x.firstPosition() {
		was = x.cell(p).Load()
		if int32(queueCell(was).lap()-x.lap(p)) == -1 && x.filled(p-1) {
			return p, was, true
		}
	}
	return x.nextSlow()
}

func (x *queueCore) nextSlow() (at, was uint64, ok bool) {
	ok = x.walk(&x.words.tail, func(p uint64) (uint64, bool) {
		w := x.cell(p).Load()
		switch d := int32(queueCell(w).lap() - x.lap(p)); {
		case d == -1 && x.filled(p-1):
			at, was = p, w
			return 0, false
		case d >= 0:
			return p + uint64(d)<<x.shift + 1, true
		}
		return 0, true
	})
	return at, was, ok
}

// queueFront is the first position whose item is in the queue, and its slot. If there is none, s is nil,
// and p is the first position that is not filled.
type queueFront struct {
	p  uint64
	i  uint32
	s  *queueSlot
	st queueState
}

// front finds the first position with an item. It fails only if a peer overwrote the ring.
func (x *queueCore) front() (f queueFront, ok bool) {
	// The usual case, without a walk.
	if p := x.words.head.Load(); p >= x.firstPosition() {
		if c := queueCell(x.cell(p).Load()); c.lap() == x.lap(p) {
			if s := x.slot(c.slot()); s != nil {
				if st := queueState(s.state.Load()); st.at(p) {
					return queueFront{p, c.slot(), s, st}, true
				}
			}
		}
	}
	return x.frontSlow()
}

func (x *queueCore) frontSlow() (f queueFront, ok bool) {
	ok = x.walk(&x.words.head, func(p uint64) (uint64, bool) {
		c := queueCell(x.cell(p).Load())
		switch d := int32(c.lap() - x.lap(p)); {
		case d == -1 && x.filled(p-1):
			f = queueFront{p: p}
			return 0, false
		case d == 0:
			if s := x.slot(c.slot()); s != nil {
				if st := queueState(s.state.Load()); st.at(p) {
					f = queueFront{p, c.slot(), s, st}
					return 0, false
				}
			}
			return p + 1, true
		case d > 0:
			// The cell is that of a later position, q = p + d laps. So the items of all positions
			// up to q - 1 lap were taken.
			return p + uint64(d-1)<<x.shift + 1, true
		}
		return 0, true
	})
	return f, ok
}

// distance is how far position p is after position q. Positions that differ by 2^32 laps are the same, since heal does
// not know how many times 2^32 laps have passed.
func (x *queueCore) distance(p, q uint64) int64 {
	return int64((p-q)<<(32-x.shift)) >> (32 - x.shift)
}

// published reports whether slot i, in state st, has been put in the ring.
func (x *queueCore) published(i uint32, st queueState) bool {
	c := queueCell(x.cell(st.tag()).Load())
	return st.kind() == queueFull && c.slot() == i && (uint64(c.lap())<<x.shift|st.tag()&x.mask)&queueTagMask == st.tag()
}

// each calls f for the slots that were ever claimed.
func (x *queueCore) each(f func(i uint32, s *queueSlot, st queueState)) {
	for i := uint32(1); i <= x.used(); i++ {
		s := x.slot(i)
		f(i, s, queueState(s.state.Load()))
	}
}

// used is a bound of the slots that were ever claimed.
func (x *queueCore) used() uint32 { return uint32(min(x.words.used.Load(), uint64(x.slots))) }

// count is how many items take up room.
func (x *queueCore) count() (n uint32) {
	x.each(func(i uint32, _ *queueSlot, st queueState) {
		switch st.kind() {
		case queueFull:
			if x.published(i, st) {
				n++
			}
		case queueLeased, queueReturned:
			n++
		}
	})
	return n
}

// full reports whether there is no room for an item at position p, the first position that is not filled. Only
// Puts increase the number of items, and only one of the Puts at p succeeds. So when an item is put at p, there
// are at most as many items as were counted here.
func (x *queueCore) full(p uint64) (full, ok bool) {
	if p-x.seen.Load() >= uint64(x.capacity) { // also true if p is before seen
		f, ok := x.front()
		if !ok {
			return false, false
		}
		d := x.distance(p, f.p)
		if d > int64(x.mask+1) {
			return false, false // more positions than there are cells: a peer overwrote a hint
		}
		x.seen.Store(p - uint64(d))
		if d >= int64(x.capacity) {
			return true, true
		}
	}
	return x.slots > x.capacity && !x.regular() && x.count() >= x.capacity, true
}

// length is how many items are in the queue.
func (x *queueCore) length() (n int) {
	if queueReturns(x.words.returned.Load()).some() {
		x.each(func(_ uint32, _ *queueSlot, st queueState) {
			if st.kind() == queueReturned {
				n++
			}
		})
	}
	tail, _, ok := x.next()
	if !ok {
		return n
	}
	if f, ok := x.front(); ok && f.s != nil {
		n += int(min(max(x.distance(tail, f.p), 0), int64(x.slots)))
	}
	return n
}

// out is how many items participants have.
func (x *queueCore) out() (n int) {
	x.each(func(_ uint32, _ *queueSlot, st queueState) {
		if st.out() {
			n++
		}
	})
	return n
}

// number is the number of an item, from 1, for messages and tools.
func (x *queueCore) number(st queueState) uint64 { return (st.tag() - x.mask) & queueTagMask }

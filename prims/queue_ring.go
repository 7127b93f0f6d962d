package prims

import "sync/atomic"

// The functions below take no lock. A participant that is stopped inside one of them keeps at most one slot; other
// participants can use all other slots.

// lap returns the lap of position p, that is, the number of its round through the ring.
func (x *queueCore) lap(p uint64) uint32 { return uint32(p >> x.shift) }

// firstPosition returns the position of the first item of a new Queue. A position is the serial number of a Put. The
// first position has lap 1, because a cell of zeros has lap 0.
func (x *queueCore) firstPosition() uint64 { return x.mask + 1 }

// filled reports whether a Put has filled position p. The positions of lap 0 count as filled, because cells of zeros
// have lap 0.
func (x *queueCore) filled(p uint64) bool {
	return int32(queueCell(x.cell(p).Load()).lap()-x.lap(p)) >= 0
}

// regular reports whether the number of items can be computed from two positions in the ring: that of the first
// item, and that of the next Put. After an item was on lease or was put back, the positions do not tell the number.
func (x *queueCore) regular() bool { return x.words.flags.Load()&queueIrregularFlag == 0 }

// deviate records that the number of items can no longer be computed from positions in the ring, because an item is
// about to be leased or put back.
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
	// queueWalk is how many steps a walk along the ring may take beyond two laps. The walk may need them because
	// other participants fill further positions meanwhile.
	queueWalk = 1000
	// queueWalks is how many walks in a row may fail although no process changes the hints head and tail. Then the
	// function walk concludes that a peer has overwritten the ring.
	queueWalks = 16
)

// walk calls the function step with one position after another, beginning with the position in the given hint. step
// returns the next position, or 0 if the ring is in a state that no correct process makes. If the second result of step
// is false, the walk ends and walk returns true. walk returns false if a peer has overwritten the ring.
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
			walks = 0 // other processes made progress, so this walk has failed only because they overtook it
		}
		x.heal()
	}
	return false
}

// heal computes the hints head and tail anew from the ring. The new values may be less than the true positions, as
// hints may be.
func (x *queueCore) heal() {
	lap := uint64(queueCell(x.cell(0).Load()).lap()) // the laps of any two cells differ by at most one
	// A cell stores its lap modulo 2^32. The additional 2^32 laps keep head and tail out of lap 0.
	p := (lap + 1<<32) << x.shift
	x.words.head.Store(p - x.mask)
	x.words.tail.Store(p)
	x.seen.Store(0)
}

// next returns the first position that is not filled, and the word of its cell. The result ok is false only if a
// peer has overwritten the ring.
func (x *queueCore) next() (p, was uint64, ok bool) {
	if p = x.words.tail.Load(); p >= x.firstPosition() {
		// Usually the hint is the position of the last item.
		if x.filled(p) {
			p++
			if was = x.cell(p).Load(); int32(queueCell(was).lap()-x.lap(p)) == -1 {
				return p, was, true
			}
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

// queueFront is the first position whose item is in the queue, and the slot of that item. If the queue is empty, s is
// nil, and p is the first position that is not filled.
type queueFront struct {
	p  uint64
	i  uint32
	s  *queueSlot
	st queueState
}

// front returns the first position whose item is in the queue. The result ok is false only if a peer has
// overwritten the ring.
func (x *queueCore) front() (f queueFront, ok bool) {
	// Usually the hint is right, and no walk is necessary.
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
			// The cell was filled for a later position q, which is d laps after p. A Put fills q only if the first
			// item of the queue is less than one lap before q. So Gets have taken the items of all positions up to
			// one lap before q.
			return p + uint64(d-1)<<x.shift + 1, true
		}
		return 0, true
	})
	return f, ok
}

// distance returns how far position p is after position q, modulo 2^32 laps. A position that heal has computed may be
// wrong by a multiple of 2^32 laps.
func (x *queueCore) distance(p, q uint64) int64 {
	return int64((p-q)<<(32-x.shift)) >> (32 - x.shift)
}

// published reports whether a cell of the ring names slot i, whose state is st. Only then is the item of the slot
// in the queue.
func (x *queueCore) published(i uint32, st queueState) bool {
	c := queueCell(x.cell(st.tag()).Load())
	return st.kind() == queueFull && c.slot() == i && (uint64(c.lap())<<x.shift|st.tag()&x.mask)&queueTagMask == st.tag()
}

// each calls f for every slot that was ever reserved for an item.
func (x *queueCore) each(f func(i uint32, s *queueSlot, st queueState)) {
	for i := uint32(1); i <= x.used(); i++ {
		s := x.slot(i)
		f(i, s, queueState(s.state.Load()))
	}
}

// used returns the number of the last slot that may ever have been reserved for an item.
func (x *queueCore) used() uint32 { return uint32(min(x.words.used.Load(), uint64(x.slots))) }

// count returns how many items take up room.
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

// full reports whether there is no room for an item at position p, the first position that is not filled. If there is
// room, it remains until a Put fills p, because only a Put adds an item. The result ok is false if a peer has
// overwritten the ring.
func (x *queueCore) full(p uint64) (full, ok bool) {
	if p-x.seen.Load() >= uint64(x.capacity) { // also true if p is less than x.seen, because the difference wraps
		f, ok := x.front()
		if !ok {
			return false, false
		}
		d := x.distance(p, f.p)
		if d > int64(x.mask+1) {
			return false, false // the first item is more than a lap before p, so a peer has overwritten a hint
		}
		x.seen.Store(p - uint64(d))
		if d >= int64(x.capacity) {
			return true, true
		}
	}
	return x.slots > x.capacity && !x.regular() && x.count() >= x.capacity, true
}

// length returns how many items are in the queue.
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

// out returns how many items participants have taken: items on lease, and items that a Get is about to return.
func (x *queueCore) out() (n int) {
	x.each(func(_ uint32, _ *queueSlot, st queueState) {
		if st.out() {
			n++
		}
	})
	return n
}

// number returns the number of an item, counted from 1, for messages and tools.
func (x *queueCore) number(st queueState) uint64 { return (st.tag() - x.mask) & queueTagMask }

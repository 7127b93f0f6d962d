package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
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

// The functions below need no lock. A participant that is stopped in the middle of one keeps
// a slot, and nothing else.

// closedQueueGate is where the gate of a closed handle points.
var closedQueueGate = uint64(queueStoppedFlag | queueClosedFlag)

// lap is the lap of position p.
func (x *queueCore) lap(p uint64) uint32 { return uint32(p >> x.shift) }

// open reports whether a Put may begin that lets nobody go first.
func (x *queueCore) open() bool {
	return atomic.LoadUint64(x.gate)&(queueStoppedFlag|queueClosedFlag) == 0 && x.putters.empty()
}

// unclaimed reports whether a Get may begin that lets nobody go first.
func (x *queueCore) unclaimed() bool {
	return atomic.LoadUint64(x.gate)&queueClosedFlag == 0 && x.getters.empty()
}

// reopen is for a call that does not wait and finds others in line: perhaps they are dead. It
// reports whether the line is empty now.
func (x *queueCore) reopen(line *fifo) bool {
	m := x.mon
	if line.empty() || !m.tryEnter() {
		return false
	}
	b := takeWakes()
	m.reapIfDue(b)
	m.leave(b)
	return line.empty()
}

// regular reports whether the positions tell how many items there are.
func (x *queueCore) regular() bool { return x.words.flags.Load()&queueIrregularFlag == 0 }

// deviate says that the positions do not tell any more how many items there are.
func (x *queueCore) deviate() {
	if x.regular() {
		x.words.flags.Or(queueIrregularFlag)
	}
}

// next finds the first position that is not filled, and the word of its cell. It fails only if a
// peer overwrote the ring.
func (x *queueCore) next() (p, was uint64, ok bool) {
	p = max(x.words.tail.Load(), x.mask+1)
	// The loop ends: the tail is at most a lap ahead, or a cell tells of a later lap.
	for range 2*x.mask + queueWalk {
		was = x.cell(p).Load()
		switch d := int32(queueCell(was).lap() - x.lap(p)); {
		case d == -1:
			return p, was, true
		case d >= 0:
			p += uint64(d)<<x.shift + 1
		default:
			p = x.heal()
		}
	}
	x.bad.Store(true)
	return 0, 0, false
}

// queueWalk is how many more steps than cells in two laps a search takes: other participants
// may go on meanwhile.
const queueWalk = 1000

// front finds the first position whose item is in the queue, and its slot; s is nil if the
// position is not filled. A slot that is on its way to a waiting Get counts if handing.
func (x *queueCore) front(handing bool) (p uint64, i uint32, s *queueSlot, st queueState) {
	p = max(x.words.head.Load(), x.mask+1)
	// The loop ends: as in next.
	for range 2*x.mask + queueWalk {
		c := queueCell(x.cell(p).Load())
		switch d := int32(c.lap() - x.lap(p)); {
		case d == -1:
			return p, 0, nil, 0
		case d == 0:
			if s = x.slot(c.slot()); s != nil {
				st = queueState(s.state.Load())
				if st.at(p) || handing && st.kind() == queueHanding && st.tag() == p&queueTagMask {
					return p, c.slot(), s, st
				}
			}
			p++
		case d > 0:
			// A later position has this cell: all before the one a lap earlier than that
			// were taken.
			p += uint64(d-1)<<x.shift + 1
		default:
			x.heal()
			p = max(x.words.head.Load(), x.mask+1)
		}
	}
	x.bad.Store(true)
	return p, 0, nil, 0
}

// heal makes the hints anew after a peer overwrote them. It gives that of the tail.
func (x *queueCore) heal() uint64 {
	first := x.mask + 1
	lap := uint64(queueCell(x.cell(0).Load()).lap()) // all laps differ by one at most
	p := max(first, lap<<x.shift)
	x.words.head.Store(max(first, p-x.mask))
	x.words.tail.Store(p)
	return p
}

// published reports whether the slot i in state st is in the queue by its position.
func (x *queueCore) published(i uint32, st queueState) bool {
	c := queueCell(x.cell(st.tag()).Load())
	return st.kind() == queueFull && c.slot() == i && (uint64(c.lap())<<x.shift|st.tag()&x.mask)&queueTagMask == st.tag()
}

// count is how many items take up room.
func (x *queueCore) count() (n uint32) {
	for i := uint32(1); i <= x.slots; i++ {
		s := x.slot(i)
		switch st := queueState(s.state.Load()); st.kind() {
		case queueFull:
			if x.published(i, st) {
				n++
			}
		case queueLeased, queueHanding, queueReturned:
			n++
		}
	}
	return n
}

// length is how many items are in the queue.
func (x *queueCore) length() (n int) {
	back := x.words.returned.Load()&1 != 0
	if back {
		for i := uint32(1); i <= x.slots; i++ {
			if queueState(x.slot(i).state.Load()).kind() == queueReturned {
				n++
			}
		}
	}
	tail, _, ok := x.next()
	front, _, s, _ := x.front(false)
	if !ok || s == nil || int64(tail-front) < 0 {
		return n
	}
	return n + int(min(tail-front, uint64(x.slots)))
}

// out is how many items participants have.
func (x *queueCore) out() (n int) {
	for i := uint32(1); i <= x.slots; i++ {
		if queueState(x.slot(i).state.Load()).out() {
			n++
		}
	}
	return n
}

// full reports whether there is no room for an item at position p, the first that is not
// filled. Only Puts make the items more, and of those at p one succeeds: so what is counted
// here is still the most that there are when the item is put at p.
func (x *queueCore) full(p uint64) bool {
	if int64(p-x.seen.Load()) >= int64(x.capacity) {
		front, _, _, _ := x.front(true)
		x.seen.Store(front)
		if int64(p-front) >= int64(x.capacity) {
			return true
		}
	}
	return x.slots > x.capacity && !x.regular() && x.count() >= x.capacity
}

// reserve claims a slot for an item at position p, whose cell is was. s is nil if there is no
// room.
func (x *queueCore) reserve() (p, was uint64, i uint32, s *queueSlot) {
	p, was, ok := x.next()
	if !ok || x.full(p) {
		return 0, 0, 0, nil
	}
	i = uint32(p%uint64(x.slots)) + 1
	for n := range x.slots {
		s = x.slot(i)
		// sync(queue.room): acquire
		if s.state.Load() == 0 && s.state.CompareAndSwap(0, uint64(makeQueueState(queueClaimed, x.name, 0))) {
			crashpoint.Hit("queue.add.claimed")
			race.Acquire(x.mon.key)
			storeWord(&s.times, 0)
			return p, was, i, s
		}
		if n == 0 && x.regular() {
			if front, _, _, _ := x.front(true); int64(p-front) >= int64(x.capacity) {
				break
			}
		}
		if i++; i > x.slots {
			i = 1
		}
	}
	return 0, 0, 0, nil
}

// publish puts the item in slot i into the queue, at position p or later. It fails if there is
// no room any more, or if the queue was shut down; then the slot is free.
func (x *queueCore) publish(p, was uint64, i uint32, s *queueSlot) bool {
	race.ReleaseMerge(x.mon.key)
	for {
		// The position may have been filled before the slot was ours, with this slot even: then
		// the tag would make an item of it that a Get takes. From now on nobody else fills a
		// cell with it.
		if x.cell(p).Load() == was {
			storeWord(&s.state, uint64(makeQueueState(queueFull, x.name, p)))
			crashpoint.Hit("queue.add.written")
			// lin: the item is in the queue.
			// sync(queue.put): release
			if x.cell(p).CompareAndSwap(was, uint64(makeQueueCell(x.lap(p), i))) {
				crashpoint.Hit("queue.add.committed")
				storeWord(&x.words.tail, p+1)
				return atomic.LoadUint64(x.gate)&queueStoppedFlag == 0 || !x.retract(p, s)
			}
		}
		// The loop ends: each time another Put was done.
		var ok bool
		if p, was, ok = x.next(); !ok || x.full(p) {
			x.release(s)
			return false
		}
	}
}

// retract takes the item at position p back, which came after Shutdown. It reports false if a
// Get has it.
func (x *queueCore) retract(p uint64, s *queueSlot) bool {
	x.deviate()
	st := makeQueueState(queueFull, x.name, p)
	return s.state.CompareAndSwap(uint64(st), 0)
}

// take gives the first item to this process, as k says. s is nil if there is none.
func (x *queueCore) take(k queueSlotKind) (i uint32, s *queueSlot) {
	race.ReleaseMerge(x.mon.key)
	for {
		back := x.words.returned.Load()
		if back&1 != 0 {
			if i, s = x.takeReturned(back, k); s != nil {
				return i, s
			}
			continue
		}
		p, i, s, st := x.front(false)
		switch {
		case x.words.returned.Load() != back:
		case s == nil:
			if int32(queueCell(x.cell(p).Load()).lap()-x.lap(p)) < 0 || x.bad.Load() {
				return 0, nil
			}
		// lin: with the load of returned, if the CAS succeeds: no position before p has an
		// item, p has one until then, and none has come back.
		// sync(queue.put): acquire
		case s.state.CompareAndSwap(uint64(st), uint64(st.with(k, x.name))):
			crashpoint.Hit("queue.take.committed")
			storeWord(&x.words.head, p+1)
			x.took()
			return i, s
		}
		// The loop ends: each time another participant took or returned an item.
	}
}

// takeReturned is take for the items that came back. Without one, it clears the word that
// tells of them, provided that none has come meanwhile.
func (x *queueCore) takeReturned(back uint64, k queueSlotKind) (uint32, *queueSlot) {
	var (
		first *queueSlot
		at    uint32
		was   queueState
	)
	for i := uint32(1); i <= x.slots; i++ {
		s := x.slot(i)
		if st := queueState(s.state.Load()); st.kind() == queueReturned && (first == nil || st.before(was)) {
			first, at, was = s, i, st
		}
	}
	switch {
	case first == nil:
		x.words.returned.CompareAndSwap(back, back&^1)
	case x.words.returned.Load() != back:
	// lin: with the load of returned, if the CAS succeeds.
	// sync(queue.back): acquire
	case first.state.CompareAndSwap(uint64(was), uint64(was.with(k, x.name))):
		crashpoint.Hit("queue.take.committed")
		x.took()
		return at, first
	}
	return 0, nil
}

func (x *queueCore) took() { race.Acquire(x.mon.key) }

// giveBack makes the item of s, which is out in state st, the first in the queue. It reports
// false if the state has changed.
func (x *queueCore) giveBack(s *queueSlot, st queueState) bool {
	x.deviate()
	race.ReleaseMerge(x.mon.key)
	count := arenakernel.ParticipantID(x.words.returned.Load() >> 1 & arenakernel.ParticipantIDMask)
	// sync(queue.back): release
	if !s.state.CompareAndSwap(uint64(st), uint64(st.with(queueReturned, count))) {
		return false
	}
	crashpoint.Hit("queue.back.committed")
	x.tellReturned()
	return true
}

// tellReturned tells Gets that items have come back.
func (x *queueCore) tellReturned() {
	for {
		// The loop ends: each time another process has changed the word.
		w := x.words.returned.Load()
		// lin: the item is in the queue again.
		if x.words.returned.CompareAndSwap(w, w&^1+3) {
			return
		}
	}
}

// release makes the slot free, which is this process's.
func (x *queueCore) release(s *queueSlot) {
	s.forget()
	race.ReleaseMerge(x.mon.key)
	// sync(queue.room): release
	s.state.Store(0)
}

// forget makes the slot that of no waiting Put, before it becomes free.
func (s *queueSlot) forget() {
	if s.stamp.Load() != 0 {
		s.stamp.Store(0)
	}
}

// drop is release for a Get that has copied its item: a Put that waits goes on.
func (x *queueCore) drop(s *queueSlot) {
	x.release(s)
	crashpoint.Hit("queue.drop.committed")
	if !x.putters.empty() {
		x.serve()
	}
}

// index makes what a peer overwrote whole: slots that are impossible become free. It reports
// whether there were such.
func (x *queueCore) index() (bad bool) {
	for i := uint32(1); i <= x.slots; i++ {
		s := x.slot(i)
		if w := s.state.Load(); !queueState(w).valid() {
			bad = true
			s.state.CompareAndSwap(w, 0)
		}
	}
	return bad
}

// holders are those whose death would bring items back, a part of them at a time.
func (x *queueCore) holders(f func(arenakernel.ParticipantID)) {
	last := arenakernel.ParticipantID(0)
	for range min(x.slots, holdersMost) {
		i := x.watched.Add(1)%x.slots + 1
		st := queueState(x.slot(i).state.Load())
		if n := st.participant(); n != 0 && n != last && n != x.name && st.kind() != queueReturned {
			f(n)
			last = n
		}
	}
}

// holdersMost is how many slots a check looks at.
const holdersMost = 4096

// reap takes back what the dead have had.
func (x *queueCore) reap(dead func(arenakernel.ParticipantID) bool) {
	for i := uint32(1); i <= x.slots; i++ {
		s := x.slot(i)
		st := queueState(s.state.Load())
		n := st.participant()
		if n == 0 || !dead(n) {
			continue
		}
		switch st.kind() {
		case queueTaken, queueLeased, queueGiven:
			if x.mon.ended(n) {
				x.giveBack(s, st)
			}
		case queueFull, queueClaimed:
			if !x.published(i, st) && x.mon.ended(n) {
				x.unclaim(s, st)
			}
		}
	}
	// Or a process died after it had returned an item, and before it told.
	x.tellReturned()
}

// unclaim makes a slot free that a dead process had claimed.
func (x *queueCore) unclaim(s *queueSlot, st queueState) {
	stamp := s.stamp.Load()
	if s.state.CompareAndSwap(uint64(st), 0) && stamp != 0 {
		s.stamp.CompareAndSwap(stamp, 0)
	}
}

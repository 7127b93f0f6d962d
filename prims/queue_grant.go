package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("queue.put.copied")
	_ = crashpoint.Register("queue.hand.claimed")
	_ = crashpoint.Register("queue.hand.granted")
)

// The functions below are called with the queue lock held, but for publishGranted.

// resolve gives items to getters and room to putters, as long as there is some, in
// the order in which they came. After Shutdown it turns the rest away.
func (x *queueCore) resolve(b *wakes) {
	x.step()
	if x.orphans.Swap(false) {
		x.adopt()
	}
	for stopped := x.stopped(); x.resolveGetter(b, stopped) || x.resolvePutter(b, stopped); {
	}
}

// adopt returns the items of slots that a granter that died was about to hand over.
func (x *queueCore) adopt() {
	for i := uint32(1); i <= x.slots; i++ {
		s := x.slot(i)
		if st := queueState(s.state.Load()); st.kind() == queueHanding {
			x.giveBack(s, st)
		}
	}
}

// resolveGetter ends the first wait for an item if that can be.
func (x *queueCore) resolveGetter(b *wakes, stopped bool) bool {
	w, ok := x.getters.head()
	if !ok {
		return false
	}
	if !x.mon.waiting(w) {
		x.abandon(w)
		return true
	}
	if w.class() == queueLease {
		x.deviate()
	}
	i, s := x.take(queueHanding)
	switch {
	case s != nil:
		crashpoint.Hit("queue.hand.claimed")
		st := queueState(s.state.Load())
		if x.mon.end(b, w, queueGranted, i) {
			x.account(w)
		} else {
			x.giveBack(s, st)
		}
	case stopped:
		x.turnAway(b, w, queueStopped)
	default:
		return false
	}
	return true
}

// resolvePutter is resolveGetter for a wait for room: the item is copied, the wait is ended,
// and then the item goes into the queue. The Put itself does the last if it runs first.
func (x *queueCore) resolvePutter(b *wakes, stopped bool) bool {
	w, ok := x.putters.head()
	if !ok {
		return false
	}
	if !x.mon.waiting(w) {
		x.abandon(w)
		return true
	}
	if stopped {
		x.turnAway(b, w, queueStopped)
		return true
	}
	_, _, i, s := x.reserve()
	if s == nil {
		return false
	}
	s.stamp.Store(w.Stamp().Load())
	owner := w.Owner()
	block := x.a.ClaimedBlock(arenakernel.Offset(w.Wanted().Load()), x.item, owner)
	if block != nil {
		copy(x.bytes(s), block)
	}
	crashpoint.Hit("queue.put.copied")
	switch {
	case !x.mon.current(owner): // the block may have been another's
		x.release(s)
		x.abandon(w)
	case block == nil:
		x.release(s)
		x.turnAway(b, w, queueCorrupt)
	case x.mon.end(b, w, queueGranted, i):
		x.account(w)
	default:
		x.release(s)
	}
	return true
}

// abandon takes a wait off that nobody is there for.
func (x *queueCore) abandon(w wait) {
	x.detach(w)
	x.mon.releaseNode(w)
}

// turnAway ends a wait with nothing.
func (x *queueCore) turnAway(b *wakes, w wait, result uint32) {
	if x.mon.end(b, w, result, 0) {
		x.mon.account(w, nil)
	}
}

// account makes the change that a wait which was granted something stands for: its
// item is in the queue, or the item of that slot is its owner's.
func (x *queueCore) account(w wait) {
	f := outcome(w.Extra().Load())
	s := x.slot(f.aux())
	switch {
	case f.result() != queueGranted || s == nil:
	case f.class() == queuePut:
		x.publishGranted(f.aux(), s, w.Stamp().Load())
	default:
		if st := queueState(s.state.Load()); st.kind() == queueHanding {
			// It fails if the owner has taken the slot.
			s.state.CompareAndSwap(uint64(st), uint64(st.with(queueGiven, w.Owner())))
			crashpoint.Hit("queue.hand.granted")
		}
	}
	x.mon.account(w, nil)
}

// publishGranted puts the item of slot i into the queue, which a waiting Put with that stamp has
// left there, unless that was done. It reports whether it did. The granter, the owner of the wait
// and the replay may all do it.
//
// Each tags the slot by CAS with the first position that is not filled, which it looks for after
// it has read the state, and then tries to fill its cell. So a tag changes only when the cell of the old one is filled. If that cell does not
// name the slot then, it never will: the CAS of everybody who tries to fill it fails.
func (x *queueCore) publishGranted(i uint32, s *queueSlot, stamp uint64) bool {
	for {
		// The loop ends: each time the slot or the tail has gone on.
		st := queueState(s.state.Load())
		if st.kind() != queueFull && st.kind() != queueClaimed || s.stamp.Load() != stamp {
			return false
		}
		p, was, ok := x.next()
		if !ok || x.published(i, st) {
			return false
		}
		if !s.state.CompareAndSwap(uint64(st), uint64(makeQueueState(queueFull, x.name, p))) {
			continue
		}
		race.ReleaseMerge(x.mon.key)
		if x.cell(p).CompareAndSwap(was, uint64(makeQueueCell(x.lap(p), i))) {
			crashpoint.Hit("queue.add.committed")
			storeWord(&x.words.tail, p+1)
			return true
		}
	}
}

// line is where a wait of a class is.
func (x *queueCore) line(class uint16) *fifo {
	if class == queuePut {
		return &x.putters
	}
	return &x.getters
}

func (x *queueCore) detach(w wait)  { x.line(w.class()).detach(w) }
func (x *queueCore) requeue(w wait) { x.line(w.class()).requeue(w) }

func (x *queueCore) each(f func(wait) bool) {
	x.getters.each(f)
	x.putters.each(f)
}

func (x *queueCore) clear() {
	x.getters.clear()
	x.putters.clear()
	x.orphans.Store(true)
}

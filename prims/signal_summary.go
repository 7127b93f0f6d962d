package prims

import (
	"math/bits"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("signal.mark.marked")
	_ = crashpoint.Register("signal.unmark.cleared")
)

// MarkActive says in the summary that a signal may have bits, and issues a
// permit if it did not say so. It reports whether this call has set the bit.
// Gates do this themselves.
func (w *SignalWaker) MarkActive(i int) bool {
	w.opening.use()
	w.checkSignal(i)
	return w.mark(i)
}

// mark is MarkActive. If the bit is found set, the process that set it issues the permit,
// and a process that clears it looks at the signal after that: the queue's bit was set
// before the look here.
func (v *signalView) mark(i int) bool {
	m := uint64(1) << i
	if v.head.summary.Load()&m != 0 || v.head.summary.Or(m)&m != 0 {
		return false
	}
	crashpoint.Hit("signal.mark.marked")
	v.release(1)
	return true
}

// MarkActiveMask is MarkActive of all signals in a mask, by one access. It gives the signals
// that were not marked before, and issues a permit for each of them.
func (w *SignalWaker) MarkActiveMask(mask uint64) (marked uint64) {
	w.opening.use()
	if mask&^w.mask != 0 {
		w.mistake("signals %#x of %d", mask, len(w.lines))
	}
	if mask == 0 {
		return 0
	}
	marked = mask &^ w.head.summary.Or(mask)
	if marked != 0 {
		crashpoint.Hit("signal.mark.marked")
		w.release(bits.OnesCount64(marked))
	}
	return marked
}

// TryUnmarkIfEmpty takes a signal out of the summary if it has no bits, and
// reports whether it did. A bit that is set meanwhile is found by a second check,
// and the signal marked again, with a permit. No permit is taken back.
func (w *SignalWaker) TryUnmarkIfEmpty(i int) bool {
	w.opening.use()
	w.checkSignal(i)
	return w.unmarkIfEmpty(i)
}

func (v *signalView) unmarkIfEmpty(i int) bool {
	m := uint64(1) << i
	if v.lines[i].bits.Load() != 0 || v.head.summary.Load()&m == 0 {
		return false
	}
	was := v.head.summary.And(^m)&m != 0
	crashpoint.Hit("signal.unmark.cleared")
	// sync(signal.summary): acquire
	if v.lines[i].bits.Load() != 0 {
		v.mark(i)
		return false
	}
	return was
}

// TryUnmark takes a signal out of the summary, whatever bits it has, and reports whether
// this call did. It is for a caller that has taken all bits of the signal for its own;
// other callers use TryUnmarkIfEmpty.
func (w *SignalWaker) TryUnmark(i int) bool {
	w.opening.use()
	w.checkSignal(i)
	m := uint64(1) << i
	return w.head.summary.Load()&m != 0 && w.head.summary.And(^m)&m != 0
}

// SnapshotSummary gives the summary: a bit for each signal that may have bits.
// It may have too many of them, never too few, except for what an operation that
// is under way has not come to.
func (w *SignalWaker) SnapshotSummary() uint64 {
	w.opening.use()
	return w.head.summary.Load() & w.mask
}

// SummarySelect gives the signal in the summary that is nearest to near, as
// [nearestBit] does: 64 when there is none.
func (w *SignalWaker) SummarySelect(near int) int {
	w.opening.use()
	return nearestBit(w.SnapshotSummary(), near)
}

// nextPasses is how often Next goes through the summary before it leaves the
// rest to another.
const nextPasses = 64

// Next finds a scheduled queue, near the queue near if it can, and begins its
// execution: the caller looks after the queue and then calls Finish of the gate.
// ok is false when no queue is scheduled; a caller that then waits does so by
// Acquire, which is told of the next.
//
// Where others sleep and more queues are scheduled it issues a permit, so that
// they are not kept waiting by this one's execution.
func (w *SignalWaker) Next(near int) (g Gate, ok bool) {
	w.opening.use()
	w.checkQueue(near)
	for range nextPasses {
		active := w.SnapshotSummary()
		if active == 0 {
			w.add(StatEmptyScans, 1)
			return Gate{}, false
		}
		if g, ok = w.pass(active, near); ok {
			w.wakeAnother()
			return g, true
		}
		// The bit was stale, and is cleared away. Something may have been scheduled
		// meanwhile for a signal that was marked all the time, and for which there is no
		// permit: so until the summary is empty, look again.
	}
	w.release(1) // the worker that takes it looks on
	w.add(StatEmptyScans, 1)
	return Gate{}, false
}

// pass goes once through the signals in active.
func (w *SignalWaker) pass(active uint64, near int) (g Gate, ok bool) {
	first := near / signalBits
	for active != 0 {
		i := nearestBit(active, first)
		active &^= 1 << i
		w.add(StatSignalPolls, 1)
		start := 0
		if i == first {
			start = near % signalBits
		}
		set := w.lines[i].bits.Load()
		if set == 0 {
			w.unmarkIfEmpty(i)
		}
		for set != 0 {
			bit := nearestBit(set, start)
			set &^= 1 << bit
			g = Gate{w: w, queue: uint32(i*signalBits + bit)}
			if g.Begin() {
				return g, true
			}
			w.drop(i*signalBits + bit)
		}
	}
	return Gate{}, false
}

// wakeAnother issues a permit for a scheduled queue besides the caller's, if a worker
// sleeps and there is no permit.
func (w *SignalWaker) wakeAnother() {
	if w.SnapshotSummary() != 0 && w.head.permits.Load() == 0 && w.wakeWord.Announced() {
		w.release(1)
	}
}

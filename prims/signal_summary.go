package prims

import (
	"math/bits"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("signal.mark.marked")
	_ = crashpoint.Register("signal.unmark.cleared")
)

// MarkActive sets the bit of a signal in the summary, which says that the signal may have bits. If the bit was not
// set, MarkActive issues a permit, which wakes a sleeping worker. It reports whether this call has set the bit. The
// methods of Gate do this themselves.
func (w *SignalWaker) MarkActive(i int) bool {
	w.opening.use()
	w.checkSignal(i)
	if w.head.summary.Load()&(1<<i) != 0 {
		return false
	}
	defer w.serve().end() // a worker may see the bit, and close the handle, before the permit is issued
	return w.mark(i)
}

// mark does what MarkActive does, but does not check i. Before the call, a queue's bit was set in the signal. If the
// summary bit is already set, the process that set it issues the permit. If a process clears the summary bit at the
// same time, that process checks the signal afterwards, and finds the queue's bit.
func (v *signalView) mark(i int) bool {
	m := uint64(1) << i
	if v.head.summary.Load()&m != 0 || v.head.summary.Or(m)&m != 0 {
		return false
	}
	crashpoint.Hit("signal.mark.marked")
	v.release(1)
	return true
}

// MarkActiveMask does what MarkActive does, for all signals in a mask, by one atomic operation. It returns the
// signals whose bits were not set before, and issues a permit for each of them.
func (w *SignalWaker) MarkActiveMask(mask uint64) (marked uint64) {
	w.opening.use()
	if mask&^w.mask != 0 {
		w.mistake("signals %#x of %d", mask, len(w.lines))
	}
	if mask == 0 {
		return 0
	}
	defer w.serve().end() // a worker may see the bits, and close the handle, before the permits are issued
	marked = mask &^ w.head.summary.Or(mask)
	if marked != 0 {
		crashpoint.Hit("signal.mark.marked")
		w.release(bits.OnesCount64(marked))
	}
	return marked
}

// TryUnmarkIfEmpty clears the bit of a signal in the summary if the signal has no bits, and reports whether it did.
// Then it checks the signal once more. If the signal has got a bit in the meantime, TryUnmarkIfEmpty sets the bit
// in the summary again and issues a permit. It takes no permit back.
func (w *SignalWaker) TryUnmarkIfEmpty(i int) bool {
	w.checkSignal(i)
	return w.unmarkCounted(i)
}

// unmarkCounted does what unmarkIfEmpty does, for a worker that executes no queue. Before the bit is set again,
// another worker may go on, and close the handle. So Close waits for the call.
func (w *SignalWaker) unmarkCounted(i int) bool {
	defer w.serve().end()
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

// TryUnmark clears the bit of a signal in the summary, whatever bits the signal has, and reports whether this
// call did so. It is for a caller that has taken all bits of the signal. Other callers use TryUnmarkIfEmpty.
func (w *SignalWaker) TryUnmark(i int) bool {
	w.opening.use()
	w.checkSignal(i)
	m := uint64(1) << i
	return w.head.summary.Load()&m != 0 && w.head.summary.And(^m)&m != 0
}

// SnapshotSummary returns the summary: a bit for each signal that may have bits. The summary may have a bit for a
// signal that has none. It lacks a bit only while an operation that will set the bit is under way.
func (w *SignalWaker) SnapshotSummary() uint64 {
	w.opening.use()
	return w.head.summary.Load() & w.mask
}

// SummarySelect returns the signal in the summary whose number is closest to the parameter near, or 64 if the
// summary is empty. See [nearestBit].
func (w *SignalWaker) SummarySelect(near int) int {
	w.opening.use()
	return nearestBit(w.SnapshotSummary(), near)
}

// nextPasses is how many times Next goes through the summary. If Next still finds nothing, it issues a permit, so
// that another worker continues the search.
const nextPasses = 64

// Next finds a scheduled queue and begins its execution. It prefers a queue whose number is close to the parameter
// near. The caller serves the queue and then calls Finish of the gate. ok is false if no queue is scheduled. Then
// the caller may call Acquire to sleep until the next queue is scheduled.
//
// If other workers sleep and more queues are scheduled, Next issues a permit, so that those
// queues need not wait for this execution.
func (w *SignalWaker) Next(near int) (g Gate, ok bool) {
	w.opening.use()
	w.checkQueue(near)
	if !w.swept.Load() {
		w.sweepFirst()
	}
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
		// The bit was stale, that is, its signal had no scheduled queue, and the method pass has cleared it. While
		// the bit was set, another queue of its signal may have been scheduled without a permit. So check again
		// until the summary is empty.
	}
	w.release(1) // the worker that takes the permit continues the search
	w.add(StatEmptyScans, 1)
	return Gate{}, false
}

// pass checks each signal once whose bit is set in the parameter active. It begins the first execution that it can, and
// then checks no more signals.
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
			w.unmarkCounted(i)
		}
		for set != 0 {
			bit := nearestBit(set, start)
			set &^= 1 << bit
			g = Gate{w: w, queue: uint32(i*signalBits + bit)}
			if g.Begin() {
				return g, true
			}
			w.dropCounted(i*signalBits + bit)
		}
	}
	return Gate{}, false
}

// wakeAnother issues a permit if the summary has a bit, a worker sleeps, and there is no permit. The permit is for
// a scheduled queue other than the caller's.
func (w *SignalWaker) wakeAnother() {
	if w.SnapshotSummary() != 0 && w.head.permits.Load() == 0 && w.wakeWord.Announced() {
		w.release(1)
	}
}

package prims

import (
	"math/bits"
	"math/rand/v2"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("signal.reserve.indexed")
	_ = crashpoint.Register("signal.reserve.taken")
	_ = crashpoint.Register("signal.unreserve.freed")
)

// ReserveTask reserves a queue for a task of this process, and returns the number of the queue. ok is false if all
// queues are reserved. The search begins at a random queue, and covers all queues. A reservation ends with
// ReleaseTask or with the death of this process. ReserveTask does not change the queue's gate. So if the gate is
// still scheduled, a worker executes the queue once although the new task has nothing to do.
func (w *SignalWaker) ReserveTask() (queue int, ok bool) {
	w.opening.use()
	return w.ReserveTaskIn(0, len(w.lines))
}

// ReserveTaskIn does what ReserveTask does, but only among the queues of some signals: from the signal start up to but
// not including the signal end.
func (w *SignalWaker) ReserveTaskIn(start, end int) (queue int, ok bool) {
	w.opening.use()
	if start < 0 || end < start || end > len(w.lines) {
		w.mistake("signals %d..%d of %d", start, end, len(w.lines))
	}
	if start == end {
		return 0, false
	}
	r := rand.Uint64()
	first, turn := int(r>>32)%(end-start), int(r%signalBits)
	for k := range end - start {
		i := start + (first+k)%(end-start)
		if bit, ok := w.reserveIn(i, turn); ok {
			return i*signalBits + bit, true
		}
	}
	return 0, false
}

// reserveIn reserves a queue of signal i.
func (w *SignalWaker) reserveIn(i, turn int) (bit int, ok bool) {
	line := &w.lines[i]
	for range 2 * signalBits {
		free := bits.RotateLeft64(^line.tasks.Load(), -turn)
		if free == 0 {
			return 0, false
		}
		bit = (bits.TrailingZeros64(free) + turn) % signalBits
		m := uint64(1) << bit
		if line.tasks.Or(m)&m != 0 {
			continue // another process was faster
		}
		crashpoint.Hit("signal.reserve.indexed")
		// lin: the reservation takes effect here. If another process has reserved the queue although the queue's bit
		// was clear, the CAS fails. Then this call leaves the bit set, because the queue is reserved.
		if w.gates[i*signalBits+bit].task.CompareAndSwap(0, uint32(w.name)) {
			crashpoint.Hit("signal.reserve.taken")
			return bit, true
		}
	}
	return 0, false
}

// ReleaseTask releases a queue that this process has reserved. It panics if this process has not
// reserved the queue.
func (w *SignalWaker) ReleaseTask(queue int) {
	w.checkQueue(queue)
	defer w.serve().end() // a process may reserve the queue, and close the handle, before its bit is cleared
	if !w.gates[queue].task.CompareAndSwap(uint32(w.name), 0) {
		w.mistake("ReleaseTask of queue %d, which this process has not reserved", queue)
	}
	crashpoint.Hit("signal.unreserve.freed")
	w.lines[queue/signalBits].tasks.And(^(uint64(1) << (queue % signalBits)))
}

// Tasks returns how many queues are reserved.
func (w *SignalWaker) Tasks() (n int) {
	w.opening.use()
	for i := range w.lines {
		n += bits.OnesCount64(w.lines[i].tasks.Load())
	}
	return n
}

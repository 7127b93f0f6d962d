package prims

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("signal.bit.acquired")

// Signal is a view of one signal of a SignalWaker: a bit for each of 64 queues. A bit is set while its queue waits
// for a worker. The [Gate] of the queue decides which worker executes the queue. The methods of a Gate set and clear
// the bits, and [SignalWaker.Next] reads them. A Signal is for programs that choose among queues in their own way. A
// program that acquires a bit calls Begin of the gate, which says whether the program may execute the queue, and then
// TryUnmarkIfEmpty of the waker.
//
// Every operation is one sequentially consistent access to one word. If a process dies after it has acquired a
// bit and before it has called Begin, nothing is lost: the reaper sets the bit again.
type Signal struct {
	v     *signalView
	line  *signalLine
	index int
}

// Signal returns signal i.
func (w *SignalWaker) Signal(i int) Signal {
	w.checkSignal(i)
	return Signal{&w.signalView, &w.lines[i], i}
}

// Index returns the number of the signal in its waker.
func (s Signal) Index() int { return s.index }

func (s Signal) bits() *atomic.Uint64 {
	s.v.opening.use()
	return &s.line.bits
}

func (s Signal) mask(bit int) uint64 {
	if bit < 0 || bit >= signalBits {
		s.v.mistake("bit %d of a signal", bit)
	}
	return 1 << bit
}

// Set sets a bit. wasEmpty reports whether the signal had no set bit before the call. wasSet is true if this call
// has set the bit, and false if the bit was set already. If wasEmpty is true, the caller has to call MarkActive of the
// waker. The caller may also call MarkActive after every Set.
func (s Signal) Set(bit int) (wasEmpty, wasSet bool) {
	m := s.mask(bit)
	old := s.bits().Or(m)
	return old == 0, old&m == 0
}

// SetMask does what Set does, for all bits in a mask. The result set has those bits of the mask that were not set
// before.
func (s Signal) SetMask(mask uint64) (wasEmpty bool, set uint64) {
	old := s.bits().Or(mask)
	return old == 0, mask &^ old
}

// Acquire clears a bit and reports whether the bit was set. If several callers acquire the same bit, exactly
// one gets true.
func (s Signal) Acquire(bit int) bool {
	_, _, ok := s.TryAcquire(bit)
	return ok
}

// TryAcquire does what Acquire does, and also returns two masks: mask has only the given bit, and before has all bits
// that were set before the call. TryAcquire writes nothing if the bit is not set.
func (s Signal) TryAcquire(bit int) (mask, before uint64, ok bool) {
	mask = s.mask(bit)
	if before = s.bits().Load(); before&mask == 0 {
		return mask, before, false
	}
	before = s.bits().And(^mask)
	if before&mask == 0 {
		return mask, before, false
	}
	crashpoint.Hit("signal.bit.acquired")
	return mask, before, true
}

// IsSet reports whether a bit is set.
func (s Signal) IsSet(bit int) bool { return s.bits().Load()&s.mask(bit) != 0 }

// Load returns all bits.
func (s Signal) Load() uint64 { return s.bits().Load() }

// Size returns the number of set bits.
func (s Signal) Size() int { return bits.OnesCount64(s.bits().Load()) }

// IsEmpty reports whether no bit is set.
func (s Signal) IsEmpty() bool { return s.bits().Load() == 0 }

// Nearest returns the set bit that is nearest to start. If two bits are equally near, it returns the lower one.
// If no bit is set, it returns 64.
func (s Signal) Nearest(start int) int { return nearestBit(s.bits().Load(), start) }

// Queue returns the number of the queue that the bit stands for.
func (s Signal) Queue(bit int) int {
	s.mask(bit)
	return s.index*signalBits + bit
}

// String renders the bits.
func (s Signal) String() string { return fmt.Sprintf("signal %d: %#x", s.index, s.Load()) }

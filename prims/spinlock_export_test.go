//go:build linux

package prims

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// This file has functions for the tests of package prims_test.

// Waiters returns how many goroutines of this process sleep, or are parked, on l.
func (l *SpinLock) Waiters() int { return l.core.queue.Waiting() }

// Waiters returns how many goroutines of this process sleep, or are parked, on l.
func (l *RWSpinLock) Waiters() int {
	return l.core.queue.Waiting() + l.gateQueue.Waiting() + l.drainQueue.Waiting()
}

// LoseGateWake simulates a process that is stopped just before it wakes the waiting readers of l. It changes the wake
// word of these readers, and wakes nobody.
func (l *RWSpinLock) LoseGateWake() {
	w := park.Word(l.core.words.gate.Load())
	l.core.words.gate.CompareAndSwap(uint32(w), uint32(w.Bumped()))
}

// GateAnnounced reports whether the next release of l wakes the readers that wait for l.
func (l *RWSpinLock) GateAnnounced() bool { return l.gate.Announced() }

// Object returns the object of l.
func (l *SpinLock) Object() arenakernel.Object { return l.core.object }

// Object returns the object of l.
func (l *RWSpinLock) Object() arenakernel.Object { return l.core.object }

// Calls returns how many calls are counted in the queue for exclusive holds. Close waits for these calls.
func (l *RWSpinLock) Calls() int { return l.core.queue.Waiting() }

// Bits returns the words that name the holders of l, combined by OR. The result is 0 if there is no holder.
func (l *RWSpinLock) Bits() uint64 {
	bits := uint64(l.core.state.Load())
	for _, r := range l.readers.load().all {
		bits |= r.count.Load()
	}
	return bits
}

// Bits returns the word that names the holder of l. The result is 0 if there is no holder.
func (l *SpinLock) Bits() uint64 { return uint64(l.core.state.Load()) }

// SetHolds overwrites the number of holds for reading that this process has.
func (l *RWSpinLock) SetHolds(holds uint32) {
	l.mine.Store(uint64(makeRWSpinCount(l.core.name, holds)))
}

// RewriteSpin overwrites the words of the spin lock at o with the bytes of b, until these are used up. The
// order of the words is: state, wake, gate, drain, policy, died, spin, lastCPU, pays, then the three heads of the
// poller lists, then the counts of readers in the order of their slots.
func RewriteSpin(a *arena.Arena, o arenakernel.Object, b []byte) {
	w := arena.At[spinWords](a, o.Body)
	for i, word := range []interface{ Store(uint32) }{&w.state, &w.wake, &w.gate, &w.drain, nil, &w.died, &w.spin, &w.lastCPU, &w.pays} {
		v, ok := next32(&b)
		switch {
		case !ok:
			return
		case i == 4:
			w.policy = v
		default:
			word.Store(v)
		}
	}
	next64 := func() (v uint64, ok bool) {
		if len(b) < 8 {
			return 0, false
		}
		v = binary.LittleEndian.Uint64(b)
		b = b[8:]
		return v, true
	}
	for _, word := range []interface{ Store(uint64) }{&w.poller, &w.gatePoller, &w.drainPoller} {
		v, ok := next64()
		if !ok {
			return
		}
		word.Store(v)
	}
	if o.Kind != rwSpinKindID {
		return
	}
	slots, err := rwSpinSlotsOf((*arenakernel.Arena)(a), o)
	if err != nil {
		panic(err)
	}
	for _, r := range slots {
		v, ok := next64()
		if !ok {
			return
		}
		r.count.Store(v)
	}
}

// Readers returns the word that counts the read holds of this process. The function ofDead returns the value that the
// word has if a dead participant of the same slot has left it with so many holds.
func (l *RWSpinLock) Readers() (word *atomic.Uint64, ofDead func(holds uint32) uint64) {
	const generation = 1 << 28 // the highest bit of the generation
	return l.mine, func(holds uint32) uint64 { return uint64(makeRWSpinCount(l.core.name^generation, holds)) }
}

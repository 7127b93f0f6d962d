//go:build linux

package prims

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Waiters returns how many goroutines of this process sleep, or are parked, on m. If the gate is open and no process
// has the upgradable hold, Waiters does not count the goroutines that wait for the writers' mutex, because then the
// mutex is held only for a moment.
func (m *RWMutex) Waiters() int {
	n := m.readers.Waiting() + m.writer.Waiting()
	if gateWord(m.gate.Load()) != gateOpen || m.upgrader() != 0 {
		n += m.writers.queue.Waiting()
	}
	return n
}

// AddWaiting adds n to the number of waiting goroutines in the reader word of this process.
func (m *RWMutex) AddWaiting(n int) { m.mine.Add(uint64(n) << readerWaitShift) }

// Asleep reports whether waiting readers have announced themselves, so that the next writer that opens the gate
// lets them in.
func (m *RWMutex) Asleep() bool { return m.wakeWordReaders.Announced() }

// OpenGate opens the gate that a waiting writer has closed, and wakes no goroutine. A process leaves the same state if
// it is stopped in checkReaders after it has opened the gate. OpenGate returns false if the gate is not closed.
func (m *RWMutex) OpenGate() bool {
	g := gateWord(m.gate.Load())
	return g.kind() == gateClosed && m.gate.CompareAndSwap(uint32(g), uint32(gateOpen))
}

// Object returns the object of m.
func (m *RWMutex) Object() arenakernel.Object { return m.object }

// Left returns, as text, the words of m that do not have their idle values. The caller knows that no process
// holds or wants m. Left returns "" if all words are idle.
func (m *RWMutex) Left() string {
	s := m.String()
	if gateWord(m.gate.Load()) != gateOpen || !ownerWord(m.words.writers.owner.Load()).free() {
		return s + ", " + m.writers.String()
	}
	for _, r := range m.readerWords().words {
		if w := r.load(); w != w.cleared() {
			return s + ", " + r.name(w).String() + " " + w.String()
		}
	}
	if m.registry.upgradable.Load() != upgradableNot {
		return s + ", and the registry tells of an upgradable hold"
	}
	m.registry.Lock()
	defer m.registry.Unlock()
	if m.registry.waiting != 0 || m.registry.due != 0 {
		return s + ", and the registry is not empty"
	}
	return ""
}

// LineOf returns the address of the reader word of a slot, or 0.
func (m *RWMutex) LineOf(slot int) uintptr {
	for _, r := range m.readerWords().words {
		if r.slot == slot {
			return uintptr(unsafe.Pointer(r.state))
		}
	}
	return 0
}

// GateAt returns the address of the gate.
func (m *RWMutex) GateAt() uintptr { return uintptr(unsafe.Pointer(m.gate)) }

// HeldByUs reports whether this process holds m for writing.
func (m *RWMutex) HeldByUs() bool { return gateWord(m.gate.Load()) == makeGate(gateHeld, m.name) }

// RewriteRWMutex overwrites words of the RWMutex at o with the bytes of b: the gate, most words of the body, the reader
// words, and the heads of the lists of poller nodes. The bytes may be values that no correct participant writes.
func RewriteRWMutex(a *arena.Arena, o arenakernel.Object, b []byte) {
	w, err := rwmutexAt((*arenakernel.Arena)(a), o)
	if err != nil {
		panic(err)
	}
	for _, word := range []*atomic.Uint32{
		w.gate, &w.writers.owner, &w.wakeReaders, &w.wakeWriter, &w.writers.wake, &w.died, &w.lastCPU, &w.pays, &w.paysWriter,
	} {
		if v, ok := next32(&b); ok {
			word.Store(v)
		}
	}
	for _, r := range readReaderWords((*arenakernel.Arena)(a), o).words {
		if len(b) >= 8 {
			r.state.Store(binary.LittleEndian.Uint64(b))
			b = b[8:]
		}
	}
	if len(b) >= 16 {
		w.pollerReaders.Store(binary.LittleEndian.Uint64(b))
		w.pollerWriter.Store(binary.LittleEndian.Uint64(b[8:]))
	}
}

// ResetRWMutex gives the gate, the writers' mutex, the poller lists and the reader words the values of a new object.
// Only the reader word of this participant keeps the participant's generation, because open handles use that word.
func ResetRWMutex(a *arena.Arena, o arenakernel.Object) {
	w, err := rwmutexAt((*arenakernel.Arena)(a), o)
	if err != nil {
		panic(err)
	}
	w.gate.Store(0)
	w.writers.owner.Store(0)
	w.writers.starving.Store(0)
	w.pollerReaders.Store(0)
	w.pollerWriter.Store(0)
	for _, r := range readReaderWords((*arenakernel.Arena)(a), o).words {
		r.state.Store(0)
		if r.slot == a.Self().Slot() {
			r.state.Store(uint64(a.Self().Generation()))
		}
	}
}

// ForgetRWMutex makes this process forget what it knows about the holds of m, as if it had opened m again.
func ForgetRWMutex(m *RWMutex) {
	m.registry.Lock()
	defer m.registry.Unlock()
	m.registry.waiting, m.registry.due = 0, 0
	m.registry.upgradable.Store(upgradableNot)
	m.registry.epoch++
}

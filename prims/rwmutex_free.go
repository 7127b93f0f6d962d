package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

// lockAtOnce locks m for writing if it is free, and reports in held whether it did. If it did not, queued says whether
// this goroutine has the writers' mutex now.
func (m *RWMutex) lockAtOnce() (queued, held bool) {
	// Load these values before the CASes, because the processor executes no later load during a CAS.
	closing, gate, closed := &m.opening.closing, m.gate, uint32(m.closedByUs())
	if closing.Load() || !m.unread() || !m.enqueueAtOnce() {
		return false, false
	}
	// The mutex was taken before this check. So either the check sees that Close has begun, or Close sees in
	// awaitUnlock that this process has the mutex.
	if closing.Load() || !gate.CompareAndSwap(uint32(gateOpen), closed) {
		return true, false
	}
	crashpoint.Hit("rwmutex.lock.closed")
	if !m.unread() || !gate.CompareAndSwap(closed, uint32(makeGate(gateHeld, m.name))) {
		m.reopen()
		return true, false
	}
	race.Acquire(m.wrote)
	race.Acquire(m.read)
	crashpoint.Hit("rwmutex.lock.acquired")
	return true, true
}

// TryLock locks m for writing if that is possible without waiting, and reports whether it did. If it did not, State
// tells why.
func (m *RWMutex) TryLock() bool {
	queued, held := m.lockAtOnce()
	if held {
		return true
	}
	if queued {
		return m.tryQueued()
	}
	return m.tryLockSlow()
}

// tryQueued continues a TryLock that has the writers' mutex. This TryLock may close the gate for a moment and open it
// again. Then a reader may get in, and may close the handle before TryLock has returned. So tryQueued makes Close wait
// for the TryLock. If the handle has ended already, tryQueued returns false instead of panicking.
func (m *RWMutex) tryQueued() bool {
	s, ok := m.opening.tryServe(m.writers.queue)
	if !ok {
		m.unlockWriters()
		return false
	}
	defer s.end()
	if !m.opening.closing.Load() && m.tryDrained("rwmutex.trylock") {
		return true
	}
	m.releaseWriters()
	return false
}

// enqueueAtOnce takes the writers' mutex by a single CAS if the mutex is free, and reports whether it did.
func (m *RWMutex) enqueueAtOnce() bool {
	w := m.writers
	if race.Enabled || !atomic.CompareAndSwapUint32(w.own, 0, atomic.LoadUint32(&w.self)) {
		return false
	}
	crashpoint.Hit("rwmutex.lock.queued")
	return true
}

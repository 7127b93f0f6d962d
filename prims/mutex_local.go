package prims

import (
	"math"
	"runtime"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// A hand-off inside a process. The owner word says for the moment that the lock is
// reserved for this process, so that a death in between is not that of an owner, and the
// goroutine that it is for is told by the Go runtime, without the kernel and the poller.
// See docs/design/0023-local-handoff.md.

// reservedFor is how long a reservation keeps others from the lock, in nanoseconds: the
// process that it is for may be stopped.
const reservedFor = 100e6

// handedLocally marks a time in the word handed as that of a hand-off inside a process.
const handedLocally = 1

// handOver hands the lock, which is held by us or free as from says, to the goroutine of
// this process that has waited for longest, if it parks and has waited for a millisecond.
// It reports false if there is none, or if a free lock was taken meanwhile: then it has
// done nothing.
func (m *Mutex) handOver(from ownerWord) bool {
	since := m.oldest()
	if since == 0 {
		return false
	}
	now := shmsync.Monotonic()
	if now-since <= starveAfter {
		return false
	}
	reserved := makeOwner(kindReserved, m.name)
	m.words.handed.Store(uint64(now) | handedLocally)
	if !m.owner.CompareAndSwap(uint32(from), uint32(reserved)) {
		if from.free() {
			return false
		}
		m.badUnlock(ownerWord(m.owner.Load()))
		return true
	}
	crashpoint.Hit("mutex.unlock.reserved")
	if !m.grant() {
		m.owner.CompareAndSwap(uint32(reserved), 0)
		m.wakeNext()
		return true
	}
	m.counts.add(countWake)
	if !m.queueLock { // a monitor first wakes those whose wait has ended, and yields then
		m.yield()
	}
	return true
}

// yield lets the goroutine run that the lock was handed to, if there is one, as sync.Mutex
// does: now, in the rest of this time slice.
func (m *Mutex) yield() {
	if m.granted.Load() > 0 {
		runtime.Gosched()
	}
}

// oldest is since when the goroutine waits that has parked for longest, 0 if none has.
func (m *Mutex) oldest() int64 {
	if m.queue == nil {
		return 0
	}
	return m.queue.Oldest()
}

// grant tells the goroutine that has parked for longest that the lock is reserved for it.
func (m *Mutex) grant() bool {
	m.granted.Add(1)
	if m.queue.Grant() {
		return true
	}
	m.granted.Add(-1)
	return false
}

// forAnother reports whether a reservation for this process is for another goroutine
// than one that waits since then: for one that was told, or one that has parked for
// longer, which it tells.
func (m *Mutex) forAnother(since int64) bool {
	if m.granted.Load() > 0 {
		return true
	}
	oldest := m.oldest()
	return oldest != 0 && oldest < since && m.grant()
}

// step is Mutex.step for this waiter. A reservation for its process may be for another
// goroutine.
func (w *waiter) step(o ownerWord) (took, changed bool, err error) {
	m := w.m
	if !w.slept || o != makeOwner(kindReserved, m.name) {
		took, changed, err = m.step(o, w.slept)
	} else if w.granted || !m.forAnother(w.since) {
		took, changed, err = m.step(o, true)
	}
	if w.granted {
		// If it did not get the lock, another process took the reservation back. It looks
		// again after this, since others leave a reservation to it until now.
		w.granted = false
		m.granted.Add(-1)
		changed = changed || err == nil && !took
	}
	return took, changed, err
}

// expired reports whether the last reservation is so old that anybody may have the lock.
func (m *Mutex) expired() bool {
	ago := shmsync.Monotonic() - int64(m.words.handed.Load()&^handedLocally)
	return ago < 0 || ago > reservedFor
}

// giveBack gives a reservation for this process back that may have been for a goroutine
// which leaves, unless another one of the process has it or gets it.
func (m *Mutex) giveBack() bool {
	reserved := makeOwner(kindReserved, m.name)
	return ownerWord(m.owner.Load()) == reserved && !m.forAnother(math.MaxInt64) && m.owner.CompareAndSwap(uint32(reserved), 0)
}

// localTurn reports whether this release is for a goroutine of this process that has
// lost for long. Every other one is for those that the kernel and the pollers wake.
func (m *Mutex) localTurn() bool { return m.turns.Add(1)&1 == 0 }

// patient has a waiter that has lost for long park, so that it can be handed the lock.
func (w *waiter) patient(b *park.SleepSpec, now int64) {
	b.Park = w.slept && now-w.since > starveAfter
}

package prims

import (
	"math"
	"runtime"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// This file hands a lock over inside a process. While the lock is on its way, the owner word says that it is
// reserved for this process, so a death at that time is not the death of an owner. The Go runtime wakes the
// goroutine that gets the lock; neither the kernel nor the poller has to. See
// docs/design/0023-local-handoff.md.

// reservedFor is how long a reservation keeps other processes from the lock, in nanoseconds.
// After that anybody may take it: the process with the reservation may be stopped.
const reservedFor = 100e6

// handedLocally marks a time in the word handed as that of a handoff inside a process.
const handedLocally = 1

// handOver hands the lock to the goroutine of this process that has waited longest, if that
// goroutine parks and has waited for a millisecond. from is the owner word: the lock is held by
// us or free. handOver reports false, and does nothing, if there is no such goroutine, or if
// another process took the free lock.
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
	if !m.queueLock { // a monitor first wakes the owners of ended waits, and yields then
		m.yield()
	}
	return true
}

// yield runs the goroutine to which the lock was handed, if there is one, in the rest of this
// time slice, as sync.Mutex does.
func (m *Mutex) yield() {
	if m.granted.Load() > 0 {
		runtime.Gosched()
	}
}

// oldest returns when the goroutine that has been parked longest began to wait, or 0 if none is parked.
func (m *Mutex) oldest() int64 {
	if m.queue == nil {
		return 0
	}
	return m.queue.Oldest()
}

// grant tells the goroutine that has parked longest that the lock is reserved for it.
func (m *Mutex) grant() bool {
	m.granted.Add(1)
	if m.queue.Grant() {
		return true
	}
	m.granted.Add(-1)
	return false
}

// forAnother reports whether a reservation for this process is meant for another goroutine than the caller,
// which began to wait at the time since. Either the other goroutine has been woken to take the reservation, or
// it has been parked for longer than the caller. In the second case forAnother wakes it.
func (m *Mutex) forAnother(since int64) bool {
	if m.granted.Load() > 0 {
		return true
	}
	oldest := m.oldest()
	return oldest != 0 && oldest < since && m.grant()
}

// step is Mutex.step for this waiter. A reservation for its process may be meant for another
// goroutine.
func (w *waiter) step(o ownerWord) (took, changed bool, err error) {
	m := w.m
	if !w.slept || o != makeOwner(kindReserved, m.name) {
		took, changed, err = m.step(o, w.slept)
	} else if w.granted || !m.forAnother(w.since) {
		took, changed, err = m.step(o, true)
	}
	if w.granted {
		// If the waiter did not get the lock, another process took the reservation back. Until now other
		// goroutines have left each reservation to this waiter. So the waiter checks the word once more after
		// this line.
		w.granted = false
		m.granted.Add(-1)
		changed = changed || err == nil && !took
	}
	return took, changed, err
}

// expired reports whether the last reservation is so old that anybody may take the lock.
func (m *Mutex) expired() bool {
	ago := shmsync.Monotonic() - int64(m.words.handed.Load()&^handedLocally)
	return ago < 0 || ago > reservedFor
}

// giveBack gives up a reservation for this process, which may have been meant for the goroutine
// that leaves. It keeps the reservation if another goroutine of the process has it or gets it.
func (m *Mutex) giveBack() bool {
	reserved := makeOwner(kindReserved, m.name)
	return ownerWord(m.owner.Load()) == reserved && !m.forAnother(math.MaxInt64) && m.owner.CompareAndSwap(uint32(reserved), 0)
}

// localTurn reports whether this release is for a goroutine of this process that has lost for
// long. Every other release is for the waiters that the kernel and the pollers wake.
func (m *Mutex) localTurn() bool { return m.turns.Add(1)&1 == 0 }

// patient makes a waiter that has lost for long park, so that it can be handed the lock.
func (w *waiter) patient(b *park.SleepSpec, now int64) {
	b.Park = w.slept && now-w.since > starveAfter
}

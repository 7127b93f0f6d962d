package prims

import (
	"math"
	"runtime"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// This file hands a lock from one goroutine to another goroutine of the same process. During the handoff the owner
// word says that the lock is reserved for this process. So if the process dies then, nobody takes it for a holder
// that died. The Go runtime wakes the goroutine that gets the lock, so neither the kernel nor the poller takes
// part. See docs/design/0023-local-handoff.md.

// reservedFor is how long a reservation keeps other processes from the lock, in nanoseconds. Afterwards any process
// may take the lock, because the process for which it is reserved may be stopped.
const reservedFor = 100e6

// handedLocally is a bit of the word handed. It is set if the last handoff was between goroutines of one process.
const handedLocally = 1

// handOver hands the lock to the goroutine of this process that has waited longest. The argument from is the
// present owner word: either this process holds the lock, or the lock is free. handOver does nothing and returns
// false in two cases: no parked goroutine has waited for a millisecond, or another process took the free lock.
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
	if !m.localLock && m.granted.Load() > 0 {
		// As sync.Mutex does, let another goroutine run, because the goroutine that was handed the lock has not run
		// yet. A goroutine that unlocks a local lock goes on, because it usually holds the CohortMutex.
		runtime.Gosched()
	}
	return true
}

// oldest returns the time at which the goroutine that has been parked longest began to wait, or 0 if none is
// parked.
func (m *Mutex) oldest() int64 { return m.queue.Oldest() }

// grant tells the goroutine that has been parked longest that the lock is reserved for it. grant returns false if
// no goroutine is parked.
func (m *Mutex) grant() bool {
	m.granted.Add(1)
	if m.queue.Grant() {
		return true
	}
	m.granted.Add(-1)
	return false
}

// forAnother reports whether a reservation for this process is meant for another goroutine than the caller. The
// argument since is the time at which the caller began to wait. The reservation is meant for another goroutine in
// two cases. First, that goroutine has been woken to take the reservation. Second, that goroutine has been parked
// for longer than the caller; forAnother then wakes it.
func (m *Mutex) forAnother(since int64) bool {
	if m.granted.Load() > 0 {
		return true
	}
	oldest := m.oldest()
	return oldest != 0 && oldest < since && m.grant()
}

// step does what Mutex.step does, for this waiter. If the lock is reserved for another goroutine of this process,
// step does not take it.
func (w *waiter) step(o ownerWord) (took, changed bool, err error) {
	m := w.m
	if !w.slept || o != makeOwner(kindReserved, m.name) {
		took, changed, err = m.step(o, w.slept)
	} else if w.granted || !m.forAnother(w.since) {
		took, changed, err = m.step(o, true)
	}
	if w.granted {
		// The reservation was for this waiter, and until here the other goroutines of this process leave every
		// reservation to it. If the waiter has not got the lock, another process has taken the lock in spite of the
		// reservation. Then the waiter must check the owner word once more, because the lock may have been reserved
		// for this process again.
		w.granted = false
		m.granted.Add(-1)
		changed = changed || err == nil && !took
	}
	return took, changed, err
}

// expired reports whether the last reservation is so old that any process may take the lock.
//
// Processes in different time namespaces have different clocks. So a reservation by a process of another namespace
// looks old at once. The only effect is that waiters may starve. A process could instead wait for 100 ms after it first
// sees a reservation. But then, if the lock is reserved for a stopped process, the first TryLock of each process would
// fail.
func (m *Mutex) expired() bool {
	ago := shmsync.Monotonic() - int64(m.words.handed.Load()&^handedLocally)
	return ago < 0 || ago > reservedFor
}

// giveBack frees a lock that is reserved for this process, and reports whether it did. The caller is a goroutine
// that stops waiting, and the reservation may have been meant for it. If another goroutine of this process waits,
// the lock stays reserved for that goroutine.
func (m *Mutex) giveBack() bool {
	reserved := makeOwner(kindReserved, m.name)
	return ownerWord(m.owner.Load()) == reserved && !m.forAnother(math.MaxInt64) && m.owner.CompareAndSwap(uint32(reserved), 0)
}

// localTurn reports whether this release may go to a goroutine of this process that has waited long. Every second
// release may. The other releases go to waiters that the kernel or a poller wakes, in any process.
func (m *Mutex) localTurn() bool { return m.turns.Add(1)&1 == 0 }

// patient lets a waiter that has waited long sleep as a parked goroutine, because only a parked goroutine can be
// handed the lock.
func (w *waiter) patient(b *park.SleepSpec, now int64) {
	b.Park = w.slept && now-w.since > starveAfter
}

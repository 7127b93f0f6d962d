package prims

import (
	"math"
	"runtime"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// This file hands a lock from one goroutine to another goroutine of the same process. During the
// handoff the owner word says that the lock is reserved for this process, so a death at that time
// is not the death of a holder. The Go runtime wakes the goroutine that gets the lock; neither the
// kernel nor the poller takes part. See docs/design/0023-local-handoff.md.

// reservedFor is how long a reservation keeps other processes from the lock, in nanoseconds. After
// that any process may take the lock, because the process with the reservation may be stopped.
const reservedFor = 100e6

// handedLocally is a bit of the word handed. It is set if the last handoff was inside a process.
const handedLocally = 1

// handOver hands the lock to the goroutine of this process that has waited longest, if that
// goroutine is parked and has waited for a millisecond. from is the owner word: this process holds
// the lock, or the lock is free. handOver reports false, and does nothing, if there is no such
// goroutine, or if another process took the free lock.
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
	if !m.queueLock { // a monitor first wakes the owners of ended waits, and then yields
		m.yield()
	}
	return true
}

// yield gives the rest of this time slice to the goroutine that was handed the lock, if there is
// one, as sync.Mutex does.
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

// grant notifies the goroutine that has been parked longest that the lock is reserved for it. It
// reports false if no goroutine is parked.
func (m *Mutex) grant() bool {
	m.granted.Add(1)
	if m.queue.Grant() {
		return true
	}
	m.granted.Add(-1)
	return false
}

// forAnother reports whether a reservation for this process is meant for another goroutine than the
// caller. since is when the caller began to wait. There are two such cases: another goroutine has
// been woken to take the reservation, or another goroutine has been parked for longer than the
// caller. In the second case forAnother wakes that goroutine.
func (m *Mutex) forAnother(since int64) bool {
	if m.granted.Load() > 0 {
		return true
	}
	oldest := m.oldest()
	return oldest != 0 && oldest < since && m.grant()
}

// step is Mutex.step for this waiter, which leaves a reservation alone if it is meant for another
// goroutine of this process.
func (w *waiter) step(o ownerWord) (took, changed bool, err error) {
	m := w.m
	if !w.slept || o != makeOwner(kindReserved, m.name) {
		took, changed, err = m.step(o, w.slept)
	} else if w.granted || !m.forAnother(w.since) {
		took, changed, err = m.step(o, true)
	}
	if w.granted {
		// If the waiter has not got the lock, another process has taken the reservation back. Until
		// now the other goroutines of this process have left each reservation to this waiter. They
		// stop doing so here, so this waiter has to check the word once more.
		w.granted = false
		m.granted.Add(-1)
		changed = changed || err == nil && !took
	}
	return took, changed, err
}

// expired reports whether the last reservation is so old that any process may take the lock.
func (m *Mutex) expired() bool {
	ago := shmsync.Monotonic() - int64(m.words.handed.Load()&^handedLocally)
	return ago < 0 || ago > reservedFor
}

// giveBack gives up a reservation for this process. The caller is a goroutine that leaves, and the
// reservation may have been meant for it. The reservation stays if another goroutine of this
// process has it or gets it.
func (m *Mutex) giveBack() bool {
	reserved := makeOwner(kindReserved, m.name)
	return ownerWord(m.owner.Load()) == reserved && !m.forAnother(math.MaxInt64) && m.owner.CompareAndSwap(uint32(reserved), 0)
}

// localTurn reports whether this release may go to a goroutine of this process that has waited
// long. Every other release does; the rest are for the waiters that the kernel and the pollers
// wake.
func (m *Mutex) localTurn() bool { return m.turns.Add(1)&1 == 0 }

// patient makes a waiter park if it has waited long, so that it can be handed the lock.
func (w *waiter) patient(b *park.SleepSpec, now int64) {
	b.Park = w.slept && now-w.since > starveAfter
}

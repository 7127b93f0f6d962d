package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// reserve reserves the lock for a waiter that has lost for long and asks for the handoff. from is
// the owner word: the lock is held by us or free. reserve reports false, and does nothing, if
// there is no such waiter, or if another process took the free lock.
func (m *Mutex) reserve(from ownerWord) bool {
	asks := m.words.starving.Load()
	if asks == 0 {
		return false
	}
	s := arenakernel.ParticipantID(asks & arenakernel.ParticipantIDMask)
	if !m.a.Current(s) {
		m.words.starving.CompareAndSwap(asks, 0)
		return false
	}
	if s == m.name && m.handOver(from) {
		return true
	}
	reserved := makeOwner(kindReserved, s)
	// The time is stored before the reservation, which would look expired otherwise.
	m.words.handed.Store(uint64(shmsync.Monotonic()) &^ handedLocally)
	if !m.owner.CompareAndSwap(uint32(from), uint32(reserved)) {
		if from.free() {
			return false
		}
		m.badUnlock(ownerWord(m.owner.Load()))
		return true
	}
	crashpoint.Hit("mutex.unlock.reserved")
	m.counts.add(countWake)
	if !m.words.starving.CompareAndSwap(uint32(s), 0) {
		// The waiter gave up in the meantime, perhaps before it could see the reservation.
		m.owner.CompareAndSwap(uint32(reserved), 0)
		m.wakeNext()
		return true
	}
	m.noteCPU()
	m.words.handoff.Add(1)
	shmsync.Wake(wordPtr(&m.words.handoff), allSleepers)
	// The waiter may be about to sleep, or parked behind its poller, even if another waiter was
	// woken.
	m.wakeWord.Touch()
	m.a.ReadyOf(&m.words.poller, s)
	return true
}

// mayHandOff reports whether the last handoff is long enough ago. Each handoff leaves the lock
// idle until the waiter runs, so handoffs are rationed.
func (m *Mutex) mayHandOff(now int64) bool {
	handed := m.words.handed.Load()
	if handed&handedLocally != 0 {
		return true // a handoff inside a process left no idle time
	}
	ago := now - int64(handed)
	return ago < 0 || ago > handOffEvery
}

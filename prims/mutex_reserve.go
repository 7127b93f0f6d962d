package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// reserve reserves the lock for the waiter that has lost for long and has asked for a handoff. from
// is the owner word: this process holds the lock, or the lock is free. reserve reports false, and
// does nothing, if there is no such waiter, or if another process took the free lock.
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
	// The time is stored before the reservation. Otherwise the reservation would have an old time
	// at first and would look expired.
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
		// The waiter has given up meanwhile, perhaps before it could see the reservation.
		m.owner.CompareAndSwap(uint32(reserved), 0)
		m.wakeNext()
		return true
	}
	m.noteCPU()
	m.words.handoff.Add(1)
	shmsync.Wake(wordPtr(&m.words.handoff), allSleepers)
	// The waiter may be about to sleep, or may be parked behind its poller. So it has to be
	// notified even if the futex wake has woken another waiter.
	m.wakeWord.Touch()
	m.a.ReadyOf(&m.words.poller, s)
	return true
}

// mayHandOff reports whether the last handoff is long enough ago. Each handoff leaves the lock idle
// until the waiter runs, so handoffs must not follow each other closely.
func (m *Mutex) mayHandOff(now int64) bool {
	handed := m.words.handed.Load()
	if handed&handedLocally != 0 {
		return true // a handoff inside a process leaves no idle time
	}
	ago := now - int64(handed)
	return ago < 0 || ago > handOffEvery
}

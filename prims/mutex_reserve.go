package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// reserve reserves the lock for a waiter that has waited long, and has asked for the lock at the next release. The
// parameter is the owner word, which says that this process holds the lock or that the lock is free. reserve does
// nothing and returns false if no waiter has asked, or if another process has taken the free lock.
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
		// The waiter has given up meanwhile, perhaps before it could see the reservation. So this call undoes the
		// reservation.
		m.owner.CompareAndSwap(uint32(reserved), 0)
		m.wakeNext()
		return true
	}
	m.noteCPU()
	m.words.handoff.Add(1)
	shmsync.Wake(wordPtr(&m.words.handoff), allSleepers)
	// The futex wake above does not reach a waiter that is about to sleep, or a goroutine that is parked behind a
	// poller. So this call also changes the wake word, and wakes the poller of the waiter's process.
	m.wakeWord.Touch()
	m.a.ReadyOf(&m.words.poller, s)
	return true
}

// mayHandOff reports whether the last handoff is long enough ago. After each handoff the lock is idle until the
// waiter runs, so handoffs must not follow each other closely.
func (m *Mutex) mayHandOff(now int64) bool {
	handed := m.words.handed.Load()
	if handed&handedLocally != 0 {
		return true // after a handoff inside a process the lock is hardly idle
	}
	ago := now - int64(handed)
	return ago < 0 || ago > handOffEvery
}

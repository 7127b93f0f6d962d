package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// reserve gives the lock, which is held by us or free as from says, to a waiter
// that has lost for long and asks for it. It reports false when there is none, or
// when the free lock was taken meanwhile: then it has done nothing.
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
	// Before the reservation, which would look old otherwise.
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
		// It gave up meanwhile, and perhaps before it could see the
		// reservation.
		m.owner.CompareAndSwap(uint32(reserved), 0)
		m.wakeNext()
		return true
	}
	m.noteCPU()
	m.words.handoff.Add(1)
	shmsync.Wake(wordPtr(&m.words.handoff), allSleepers)
	// The waiter may be about to sleep, or parked behind its poller, although another waiter
	// was woken.
	m.wakeWord.Touch()
	m.a.ReadyOf(&m.words.poller, s)
	return true
}

// mayHandOff reports whether the last hand-off is long enough ago. Each leaves the
// lock idle until the waiter runs, so they are rationed.
func (m *Mutex) mayHandOff(now int64) bool {
	handed := m.words.handed.Load()
	if handed&handedLocally != 0 {
		return true // that one cost nothing
	}
	ago := now - int64(handed)
	return ago < 0 || ago > handOffEvery
}

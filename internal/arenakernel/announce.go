package arenakernel

import (
	"math/bits"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// Offsets within an announce record.
const (
	announceObject = 0
	announceWord   = 8 // 0 if the record is free
	announceSince  = 16
	announceWanted = 24
)

// An announce record says that a thread of its owner sleeps on a word of the arena, or is about to
// sleep. When another participant dies, its reaper, the process that cleans up after the death, wakes
// the waiters of that word's object once. The dead participant may have been about to wake them.
//
//	writers: the owner
//	readers: reapers, the owner's periodic check, tools
//	order:   release; the waiter's last check at the word comes after it (seq-cst)
//	futex:   none
//	crash:   goes with the slot

// Announce takes an announce record and stores the arguments object, word and wanted in it. The argument wanted says
// what the wait is for. The argument most, at most 32, is the maximum number of records in use. If this process
// already uses as many, Announce returns false. The wait then has to use a poller node, that is, the record by which
// a process that releases something finds the waiters of another process.
func (a *Arena) Announce(object, word Offset, wanted uint64, most int) (record int, ok bool) {
	for {
		used := a.announceMap.Load()
		if bits.OnesCount32(used) >= most {
			return 0, false
		}
		k := bits.TrailingZeros32(^used)
		if !a.announceMap.CompareAndSwap(used, used|1<<k) {
			continue
		}
		r := a.announceRecord(a.mySlot, k)
		// Often the record still contains the same values from the previous wait. So store a value
		// only if it differs, because a load is cheaper than a store.
		setTo(a.u64(r+announceObject), uint64(object))
		setTo(a.u64(r+announceSince), 0)
		setTo(a.u64(r+announceWanted), wanted)
		a.u64(r + announceWord).Store(uint64(word))
		return k, true
	}
}

func setTo(w *atomic.Uint64, v uint64) {
	if w.Load() != v {
		w.Store(v)
	}
}

// StampAnnounced stores the current time in each announce record of this process that has no time
// yet. Such a record says that a thread sleeps on a word of the arena. A waiter does not read the
// clock when it fills in its record, because that would slow down short waits. So the first
// periodic check after the wait has begun stores the time.
func (a *Arena) StampAnnounced() {
	for k := range announceCount {
		r := a.announceRecord(a.mySlot, k)
		if a.u64(r+announceWord).Load() == 0 {
			continue
		}
		since, now := a.u64(r+announceSince), shmsync.Monotonic()
		if !since.CompareAndSwap(0, uint64(now)) {
			continue
		}
		// If this thread was stopped before it stored the time, the record may by now belong to a
		// later wait. The time is then too early, and is replaced.
		if later := shmsync.Monotonic(); later-now > stampSlack {
			since.CompareAndSwap(uint64(now), uint64(later))
		}
	}
}

// stampSlack is the tolerance, in nanoseconds: the recorded time of a wait may be too early by that
// much.
const stampSlack = 1e5

// DateAnnounced stores in an announce record the time when its wait began. The waiter calls it after
// it has slept in this wait, and has read the clock for another reason.
func (a *Arena) DateAnnounced(record int, since int64) {
	a.u64(a.announceRecord(a.mySlot, record) + announceSince).Store(uint64(since))
}

// Retract frees the announce record of a wait that has ended. It returns the time when the wait
// began, or 0 if no time was recorded.
func (a *Arena) Retract(record int) (since int64) {
	r := a.announceRecord(a.mySlot, record)
	since = int64(a.u64(r + announceSince).Load())
	a.u64(r + announceWord).Store(0)
	a.announceMap.And(^uint32(1 << record))
	return since
}

func (a *Arena) announceRecord(slot, k int) Offset {
	return a.slot(slot) + slotAnnounce + Offset(k*announceStride)
}

// owed returns, for each object that an announce record names, which wakes of its waiters may have
// been lost because a participant died. The parameter named dead is the ID of that participant.
func (a *Arena) owed(dead ParticipantID) map[Offset]Owed {
	owed := map[Offset]Owed{}
	for i := 1; i <= a.geo.slots; i++ {
		level := OwedOne
		if i == dead.Slot() {
			level = OwedAll
		} else if !a.slotState(i).present() {
			continue
		}
		for k := range announceCount {
			r := a.announceRecord(i, k)
			if a.u64(r+announceWord).Load() != 0 {
				o := Offset(a.u64(r + announceObject).Load())
				owed[o] = max(owed[o], level)
			}
		}
	}
	return owed
}

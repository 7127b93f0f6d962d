package arenakernel

import (
	"math/bits"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// Offsets within an announce record.
const (
	announceObject = 0
	announceWord   = 8 // 0: the record is free
	announceSince  = 16
	announceWanted = 24
)

// An announce record says that a thread of its owner sleeps, or is about to, on a word of the
// arena. If another participant dies, its reaper wakes the object of that word once, because the
// dead participant may have been about to do so.
//
//	writers: the owner
//	readers: reapers, the owner's periodic check, tools
//	order:   release; the waiter's last check at the word comes after it (seq-cst)
//	futex:   none
//	crash:   goes with the slot

// Announce takes an announce record and fills it in. wanted is what the wait is for. Announce
// reports false if most records are taken already; then the wait has to use a poller node. most is
// at most 32.
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
		// Usually the record holds the same values as the last time, and a load is cheaper than a
		// store.
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

// StampAnnounced writes the date into those of this process's announce records that have none yet.
// A waiter does not read the clock for its record, because that would slow down short waits.
// Instead, the first periodic check of the process writes the date.
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
		// This thread may have been stopped before it stored the date. The record may then belong
		// to a later wait.
		if later := shmsync.Monotonic(); later-now > stampSlack {
			since.CompareAndSwap(uint64(now), uint64(later))
		}
	}
}

// stampSlack is by how many nanoseconds the date of a wait may be too early.
const stampSlack = 1e5

// DateAnnounced writes the date into the announce record of a waiter that has already slept in the
// same wait, and has read the clock for another reason.
func (a *Arena) DateAnnounced(record int, since int64) {
	a.u64(a.announceRecord(a.mySlot, record) + announceSince).Store(uint64(since))
}

// Retract frees an announce record. It returns the date of the record, or 0.
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

// owed returns, for each object on which a wait is recorded, the wakes that may have been lost by
// the death of dead.
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

package arena

import (
	"math/bits"

	"github.com/shmsync/shmsync"
)

// Offsets within an announce record.
const (
	announceObject = 0
	announceWord   = 8 // 0: the record is free
	announceSince  = 16
	announceWanted = 24
)

// An announce record says that a thread of its owner sleeps, or is about to, on
// a word of the arena: whoever cleans up after a death wakes that word's object
// once, since the dead may have owed the wake.
//
//	writers: the owner
//	readers: reapers, the owner's look, tools
//	order:   release; the waiter's last look at the word comes after it (seq-cst)
//	futex:   none
//	crash:   goes with the slot

// Announce takes an announce record and fills it in. It reports false when all
// are taken: then the wait has to go through a hub node.
func (a *Arena) Announce(object, word Offset, wanted uint64) (record int, ok bool) {
	for {
		used := a.announceMap.Load()
		free := ^used
		if free == 0 {
			return 0, false
		}
		k := bits.TrailingZeros32(free)
		if !a.announceMap.CompareAndSwap(used, used|1<<k) {
			continue
		}
		r := a.announceRecord(a.mySlot, k)
		a.u64(r + announceObject).Store(uint64(object))
		a.u64(r + announceSince).Store(uint64(shmsync.Monotonic()))
		a.u64(r + announceWanted).Store(wanted)
		a.u64(r + announceWord).Store(uint64(word))
		return k, true
	}
}

// Retract gives an announce record back.
func (a *Arena) Retract(record int) {
	a.u64(a.announceRecord(a.mySlot, record) + announceWord).Store(0)
	a.announceMap.And(^uint32(1 << record))
}

func (a *Arena) announceRecord(slot, k int) Offset {
	return a.slot(slot) + slotAnnounce + Offset(k*announceStride)
}

// announced calls f for the object of each announce record of each participant
// that is there.
func (a *Arena) announced(f func(object Offset)) {
	for i := 1; i <= a.geo.slots; i++ {
		if !a.slotState(i).present() {
			continue
		}
		for k := range announceCount {
			r := a.announceRecord(i, k)
			if a.u64(r+announceWord).Load() != 0 {
				f(Offset(a.u64(r + announceObject).Load()))
			}
		}
	}
}

package prims

import (
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// rwSpinSlot is the count of one participant's readers, and the slot of that participant. The count is in a slot record,
// which stays at its place until the RWSpinLock is deleted. See rwSpinRecord.
type rwSpinSlot struct {
	count *atomic.Uint64 // see rwSpinCount
	slot  int
}

// rwSpinSlots returns the list of the slot records of the RWSpinLock o. The caller opens the list.
func rwSpinSlots(a *arenakernel.Arena, o arenakernel.Object) recordSlots[rwSpinSlot] {
	return recordSlots[rwSpinSlot]{
		a: a, object: o, size: rwSpinRecordBytes,
		view: func(off arenakernel.Offset, slot int) rwSpinSlot {
			return rwSpinSlot{&arenakernel.SlotRecordAt[rwSpinRecord](a, off).count, slot}
		},
		slotOf: rwSpinSlotOf,
	}
}

func rwSpinSlotOf(s rwSpinSlot) int { return s.slot }

// rwSpinSlotsOf returns the counts of readers in the RWSpinLock o, in the order of their slots, for a caller that has no
// handle on it. If the list of slot records is corrupt, the result also has an error.
func rwSpinSlotsOf(a *arenakernel.Arena, o arenakernel.Object) ([]rwSpinSlot, error) {
	list := rwSpinSlots(a, o)
	list.open(false)
	return sortedSlots(&list)
}

// sortedSlots returns the counts in a list in the order of their slots.
func sortedSlots(list *recordSlots[rwSpinSlot]) ([]rwSpinSlot, error) {
	known := list.load()
	return slices.SortedFunc(slices.Values(known.all), func(x, y rwSpinSlot) int { return x.slot - y.slot }), known.err
}

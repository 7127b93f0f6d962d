package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// plainRecords finds the slot records of an object whose participants keep nothing in their slots but the
// record of their last change. It is a part of a handle.
type plainRecords struct {
	slots recordSlots[plainSlot]
	// record is the record of this participant. It is zero in the handle of a reaper or a tool.
	record recordPlaces
	self   int // the slot of this participant
}

// plainSlot is the record of a slot.
type plainSlot struct {
	slot  int
	words *plainRecord
}

// openRecords finds the records for a handle on o. If join is true, the slot of this participant gets a record first.
// ok is false if that record cannot be found afterwards.
func (p *plainRecords) openRecords(a *arenakernel.Arena, o arenakernel.Object, join bool) (ok bool, err error) {
	p.self = a.Self().Slot()
	p.slots = recordSlots[plainSlot]{
		a: a, object: o, size: plainRecordBytes, slotOf: func(r plainSlot) int { return r.slot },
		view: func(off arenakernel.Offset, slot int) plainSlot {
			return plainSlot{slot, arenakernel.SlotRecordAt[plainRecord](a, off)}
		},
	}
	if err := p.slots.open(join); err != nil || !join {
		return true, err
	}
	p.record, ok = p.recordAt(p.self)
	return ok, nil
}

// recordAt returns the record of a slot. The recordQueue calls it.
func (p *plainRecords) recordAt(slot int) (r recordPlaces, ok bool) {
	if p.record.head != nil && slot == p.self {
		return p.record, true
	}
	at, ok := p.slots.of(slot)
	if !ok {
		return r, false
	}
	return recordPlaces{&at.words.head, &at.words.kinds, &at.words.entries}, true
}

package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// plainRecords finds the slot records of an object, that is, the memory that the object keeps for each participant
// that has opened it. Each handle contains a plainRecords, if its object keeps in a slot record only the record of the
// last change that the participant made.
type plainRecords struct {
	slots recordSlots[plainSlot]
	// record is the slot record of this participant. It is zero in the handle of a reaper or a tool.
	record recordPlaces
	self   int // the slot of this participant
}

// plainSlot is the slot record of one participant, and the index of its slot.
type plainSlot struct {
	slot  int
	words *plainRecord
}

// openRecords finds the slot records for a new handle on o. If join is true, it first makes a record for this
// participant if there is none. ok is false if that record cannot be found afterwards.
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

// recordAt returns the record of the participant in a slot. The recordQueue calls it.
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

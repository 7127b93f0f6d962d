package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// plainRecords finds the slot records of an object, that is, the memory that the object keeps for each participant that
// has opened it. The handles of an object contain a plainRecords if its slot records have nothing but the record of the
// last change of their participant.
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

// openRecords finds the slot records for a new handle on o. If join is true, this participant gets a slot record if it
// has none yet. ok is false if openRecords then does not find the slot record of this participant.
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

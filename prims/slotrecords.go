package prims

import (
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// slotTable finds the slot records of an object by their slots, for one handle. A slot record is the memory that the
// object keeps for one participant; here it is a T. The slot records form a list. Once a handle has found a record,
// it keeps the record, even if a peer overwrites the list. A record stays at its place until the object is deleted.
// So the handle reads the list again only when the list has changed.
//
// slotTable is for objects whose changes look up several slots each. Handles of other objects have a [recordSlots],
// which takes memory only for the participants that have used the object.
type slotTable[T any] struct {
	a      *arenakernel.Arena
	object arenakernel.Object
	head   *atomic.Uint32 // the latest slot record
	size   uint64         // the size of a slot record in bytes
	known  atomic.Pointer[slotPlaces[T]]
}

// slotPlaces are the places of the slot records that a handle knows.
type slotPlaces[T any] struct {
	head uint32 // the latest slot record when the list was read
	of   []*T   // of[n-1] is the record of slot n, or nil if there is none
	err  error  // an error in the list
}

func (l *slotTable[T]) init(a *arenakernel.Arena, o arenakernel.Object, size uint64) {
	l.a, l.object, l.head, l.size = a, o, a.SlotRecords(o), size
	l.known.Store(new(slotPlaces[T])) // the head 0 is that of a list without records
}

// join returns the record of this participant, and makes it if there is none.
func (l *slotTable[T]) join() (*T, error) {
	off, err := l.a.SlotRecord(l.object, l.size)
	if err != nil {
		return nil, err
	}
	return arenakernel.SlotRecordAt[T](l.a, off), nil
}

// load returns the places of all slot records.
//
// A participant puts its record on the list when it opens the object, before its first change. So a call that
// loads the commit word, and then calls load, finds each record that the state can name.
func (l *slotTable[T]) load() *slotPlaces[T] {
	for {
		known, head := l.known.Load(), l.head.Load()
		if known.head == head {
			return known
		}
		r := &slotPlaces[T]{head: head, of: slices.Clone(known.of)}
		r.err = l.a.EachSlotRecord(l.object, l.size, func(off arenakernel.Offset, slot int) bool {
			if slot > len(r.of) {
				r.of = append(r.of, make([]*T, slot-len(r.of))...)
			}
			if r.of[slot-1] == nil {
				r.of[slot-1] = arenakernel.SlotRecordAt[T](l.a, off)
			}
			return true
		})
		// If the CAS fails, another goroutine of this process has stored a new list. So the loop is lock-free.
		if l.known.CompareAndSwap(known, r) {
			return r
		}
	}
}

// at returns the record of a slot, or nil if the slot has none.
func (l *slotTable[T]) at(slot int) *T {
	if r := l.load(); slot >= 1 && slot <= len(r.of) {
		return r.of[slot-1]
	}
	return nil
}

// withKnown returns the slot records that a handle already knows, followed by new ones. The parameter read is the
// present list of the object. A record in it is new if the handle knows no record of the same slot. A correct process
// never removes a record from the list before the object is deleted. So if the list lacks a known record, a peer has
// overwritten the list, and withKnown keeps the record. slotOf returns the slot of a record, and slots is the greatest
// slot.
func withKnown[R any](known, read []R, slotOf func(R) int, slots int) []R {
	has := make([]bool, slots+1)
	for _, r := range known {
		has[slotOf(r)] = true
	}
	all := append(make([]R, 0, max(len(known), len(read))), known...)
	for _, r := range read {
		if !has[slotOf(r)] {
			all = append(all, r)
		}
	}
	return all
}

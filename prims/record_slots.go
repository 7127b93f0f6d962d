package prims

import (
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// recordSlots is what one handle knows of the list of the slot records of an object. A slot record is the memory that
// the object keeps for one participant. For each slot record, the handle remembers a value of the type R. A slot record
// stays at its place until the object is deleted. So the handle reads the list again only when the list has changed. A
// new handle knows only the record of its own participant, and reads the list when it needs the record of another
// participant.
type recordSlots[R any] struct {
	a      *arenakernel.Arena
	object arenakernel.Object
	head   *atomic.Uint32 // the latest slot record
	size   uint64         // the size of a slot record in bytes
	view   func(off arenakernel.Offset, slot int) R
	slotOf func(R) int
	known  atomic.Pointer[recordSlotList[R]]
	joined bool // the participant of this handle has a record
}

// recordSlotList has slot records. The records that the handle knew before it read the list come first. The other
// records follow in the order in which they were added to the list.
type recordSlotList[R any] struct {
	head uint32 // the latest slot record when the list was read
	all  []R
	err  error // an error in the list; the field all then has the records before the error, and those known earlier
}

// read reads the list of slot records.
func (l *recordSlots[R]) read() *recordSlotList[R] {
	r := &recordSlotList[R]{head: l.head.Load()}
	r.err = l.a.EachSlotRecord(l.object, l.size, func(off arenakernel.Offset, slot int) bool {
		r.all = append(r.all, l.view(off, slot))
		return true
	})
	slices.Reverse(r.all)
	return r
}

// open prepares the list for a new handle. If join is true, it makes a record for this participant if there is none.
func (l *recordSlots[R]) open(join bool) error {
	l.head = l.a.SlotRecords(l.object)
	known := &recordSlotList[R]{} // its head is 0, so load reads the list unless the list is empty
	if join {
		off, err := l.a.SlotRecord(l.object, l.size)
		if err != nil {
			return err
		}
		known.all = []R{l.view(off, l.a.Self().Slot())}
	}
	l.known.Store(known)
	l.joined = join
	return nil
}

// makeRecord makes a slot record for this participant, which has not opened the object, but visits it because it
// reaps a dead participant. makeRecord reports whether there is room for the record.
func (l *recordSlots[R]) makeRecord() bool {
	_, err := l.a.SlotRecord(l.object, l.size)
	return err == nil
}

// load returns all slot records. A record that was found once stays known, even if a peer overwrites the list.
//
// A participant puts its record on the list when it opens the object, before its first change. So a call that
// loads the commit word, and then calls load, finds the record that the commit word names.
func (l *recordSlots[R]) load() *recordSlotList[R] {
	for {
		known := l.known.Load()
		if known.head == l.head.Load() {
			return known
		}
		r := l.read()
		r.all = withKnown(known.all, r.all, l.slotOf, l.a.MaxParticipants())
		// A failed CAS means that another goroutine of this process has stored a list, so the loop is
		// lock-free.
		if l.known.CompareAndSwap(known, r) {
			return r
		}
	}
}

// of returns the record of the participant in a slot. A record never moves, so the list is read again only if the
// record is not known yet. The handle of a reaper or a tool serves only one call, so it does not keep the records that
// it reads.
func (l *recordSlots[R]) of(slot int) (r R, ok bool) {
	r, ok = l.in(l.known.Load(), slot)
	switch {
	case ok:
	case l.joined:
		r, ok = l.in(l.load(), slot)
	default:
		l.a.EachSlotRecord(l.object, l.size, func(off arenakernel.Offset, is int) bool {
			if ok = is == slot; ok {
				r = l.view(off, slot)
			}
			return !ok
		})
	}
	return r, ok
}

func (l *recordSlots[R]) in(list *recordSlotList[R], slot int) (r R, ok bool) {
	for _, r := range list.all {
		if l.slotOf(r) == slot {
			return r, true
		}
	}
	return r, false
}

// recordQueueWords are the words of an object that its recordQueue uses.
type recordQueueWords struct {
	commit, first, last *atomic.Uint64
	spin, pays, lastCPU *atomic.Uint32
	counts              *countWords
}

// init initializes q for a handle on o.
func (q *recordQueue) init(a *arenakernel.Arena, o arenakernel.Object, w recordQueueWords, of recordedObject) {
	dev, ino := a.Segment().ID()
	q.a, q.object, q.of, q.slot = a, o, of, a.Self().Slot()
	q.commit, q.first, q.last, q.counts = w.commit, w.first, w.last, w.counts
	q.private, q.key = privateOf(o), race.KeyOf(dev, ino, uint64(o.Offset))
	q.tuning = park.Tuning{Budget: w.spin, Pays: w.pays, LastCPU: w.lastCPU, Slot: q.slot}
	q.deaths.Store(a.Deaths() - 1) // one less than the count of deaths, so that the first check reaps
}

package prims

import (
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// recordSlots are the slot records of an object with a recorded queue, as one handle knows them. R is what
// the handle remembers of a record. A slot record stays where it is until the object is deleted. So the
// handle looks at the list of records only when that has changed.
type recordSlots[R any] struct {
	a      *arenakernel.Arena
	object arenakernel.Object
	head   *atomic.Uint32 // the latest slot record
	size   uint64         // bytes of a record
	view   func(off arenakernel.Offset, slot int) R
	slotOf func(R) int
	known  atomic.Pointer[recordSlotList[R]]
}

// recordSlotList are slot records in the order in which they came.
type recordSlotList[R any] struct {
	head uint32 // the latest slot record when the list was read
	all  []R
	err  error // an error in the list; all has the records before it, and those that were known earlier
}

// read reads the list of the slot records.
func (l *recordSlots[R]) read() *recordSlotList[R] {
	r := &recordSlotList[R]{head: l.head.Load()}
	r.err = l.a.EachSlotRecord(l.object, l.size, func(off arenakernel.Offset, slot int) bool {
		r.all = append(r.all, l.view(off, slot))
		return true
	})
	slices.Reverse(r.all)
	return r
}

// open reads the list for a new handle. If join is true, the slot of this participant gets a record first.
func (l *recordSlots[R]) open(join bool) error {
	l.head = l.a.SlotRecords(l.object)
	if join {
		if _, err := l.a.SlotRecord(l.object, l.size); err != nil {
			return err
		}
	}
	r := l.read()
	if r.err == nil {
		l.known.Store(r)
	}
	return r.err
}

// load returns all slot records. One that is known stays known, whatever a peer makes of the list.
//
// A participant puts its record on the list when it opens the object, before its first change. So a call
// that has loaded the commit word finds each record that a change may name while the word is the same.
func (l *recordSlots[R]) load() *recordSlotList[R] {
	for {
		known := l.known.Load()
		if known.head == l.head.Load() {
			return known
		}
		r := l.read()
		r.all = withKnown(known.all, r.all, l.slotOf, l.a.MaxParticipants())
		// The loop ends: if the swap fails, another goroutine has read the list.
		if l.known.CompareAndSwap(known, r) {
			return r
		}
	}
}

// of is the record of a slot.
func (l *recordSlots[R]) of(slot int) (r R, ok bool) {
	for _, r := range l.load().all {
		if l.slotOf(r) == slot {
			return r, true
		}
	}
	return r, false
}

// recordQueueWords are the words of an object that its recorded queue uses.
type recordQueueWords struct {
	commit, first, last *atomic.Uint64
	spin, pays, lastCPU *atomic.Uint32
	counts              *countWords
}

// init makes q the side of a handle on o.
func (q *recordQueue) init(a *arenakernel.Arena, o arenakernel.Object, w recordQueueWords, of recordedObject) {
	dev, ino := a.Segment().ID()
	q.a, q.object, q.of, q.slot = a, o, of, a.Self().Slot()
	q.commit, q.first, q.last, q.counts = w.commit, w.first, w.last, w.counts
	q.private, q.key = &recordPrivate[o.Offset/64%64], race.KeyOf(dev, ino, uint64(o.Offset))
	q.tuning = park.Tuning{Budget: w.spin, Pays: w.pays, LastCPU: w.lastCPU, Slot: q.slot}
	q.deaths.Store(a.Deaths() - 1) // one less than the count of deaths, so that the first check reaps
}

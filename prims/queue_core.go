package prims

import (
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// queueCore is the part of a Queue handle that does not depend on the type of the items.
//
// The items are in slots, see queueState, and a ring of cells gives their order, see queueCell. The slots and
// the cells are the whole state of the Queue. A waiter is not handed an item or a place: a call that waits
// sleeps until the Queue may have changed, and then checks the ring itself.
type queueCore struct {
	words    *queueWords
	items    queueSide // the calls that wait for items
	room     queueSide // the calls that wait for room
	a        *arenakernel.Arena
	object   arenakernel.Object
	name     arenakernel.ParticipantID
	key      race.Key
	counts   *countWords
	opening  *opening
	capacity uint32
	slots    uint32
	shift    uint   // logarithm of the number of cells
	mask     uint64 // the number of cells less 1
	first    uint64 // where the slots begin
	item     uint64 // bytes
	stride   uint64

	shut    atomic.Bool   // the handle is being closed, or was
	seen    atomic.Uint64 // a position: no position before it has an item
	watched atomic.Uint32 // the last slot that a periodic check examined
	back    returnedSlots
}

// queueSide is one of the two sides of a Queue: the calls that wait for items, or the calls that wait for room.
type queueSide struct {
	words *queueSideWords
	wake  park.WakeWord
	queue *park.Queue // nil for a reaper's handle, which cannot wait
	// there reports whether a waiter may be able to go on now. most bounds how many slots it examines.
	there  func(most uint32) bool
	looked atomic.Uint64 // a checksum of the words that the last periodic check read
}

func buildQueue(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*queueCore, error) {
	w, shape, ok := shapeOfQueue(a, o)
	if !ok {
		return nil, &shmsync.Error{Op: "queue.open", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: "its body has no room for its slots"}
	}
	dev, ino := a.Segment().ID()
	x := &queueCore{
		words: w, a: a, object: o, name: a.Self(), key: race.KeyOf(dev, ino, uint64(o.Offset)),
		counts: countsOf(a, &w.counts), capacity: uint32(shape.capacity), item: shape.item,
	}
	x.slots = uint32(queueSlots(shape.capacity))
	x.shift = queueLapShift(uint64(x.slots))
	x.mask = 1<<x.shift - 1
	x.first = queueHeadBytes + 8<<x.shift
	x.stride = queueStride(x.item)
	x.items.words, x.items.wake, x.items.there = &w.items, queueWakeWord(a, &w.items), x.itemThere
	x.room.words, x.room.wake, x.room.there = &w.room, queueWakeWord(a, &w.room), x.roomThere
	if bare {
		return x, nil
	}
	x.opening = newOpening(a, o)
	x.items.queue = x.newSideQueue(&x.items, o.Body+queueItemsOff)
	x.room.queue = x.newSideQueue(&x.room, o.Body+queueRoomOff)
	x.opening.waitsIn(x.items.queue, x.room.queue)
	x.opening.refuse, x.opening.drain, x.opening.end = x.refuse, x.awaitCalls, x.end
	return x, nil
}

func (x *queueCore) newSideQueue(side *queueSide, word arenakernel.Offset) *park.Queue {
	return park.NewQueue(park.Config{
		WaitList: side.wake.WaitList, Object: x.object, Word: word, Check: func() { x.check(side) }, Miss: side.wake.WakeOne,
	})
}

func (x *queueCore) refuse() {
	x.shut.Store(true)
	park.Refuse(x.items.queue, x.room.queue)
}

// callsMost bounds how long Close waits for the calls of this process that do not block. Such a call is short.
// It takes longer only if its thread is preempted, or seems to if a peer has overwritten the slots.
const callsMost = time.Second

// awaitCalls waits until no call of this process still works with a slot. It has to read the slots for that,
// because calls that do not block are not counted: counting would double their cost.
func (x *queueCore) awaitCalls() {
	var until time.Time
	x.each(func(i uint32, s *queueSlot, was queueState) {
		for st := was; st == was && st.busy() && st.participant() == x.name && !x.published(i, st); st = queueState(s.state.Load()) {
			switch now := time.Now(); {
			case until.IsZero():
				until = now.Add(callsMost)
			case now.After(until):
				return
			}
			time.Sleep(20 * time.Microsecond)
		}
	})
}

// end closes the queues of the handle.
func (x *queueCore) end() {
	x.items.queue.Close()
	x.room.queue.Close()
}

func (x *queueCore) fail(op string, err error, detail string) error {
	return failed(x.a, x.object, op, err, nil, detail)
}

func (x *queueCore) canceled(op string) error {
	return x.fail(op, shmsync.ErrCanceled, "it was shut down")
}
func (x *queueCore) closed(op string) error { return x.fail(op, shmsync.ErrClosed, closedHandle) }
func (x *queueCore) corrupt(op string) error {
	return x.fail(op, shmsync.ErrCorrupt, "its ring has impossible cells")
}

// open reports whether a Put may begin. If not, the handle is closed or the Queue was shut down, and the caller
// has to find out which.
func (x *queueCore) open() bool {
	return !x.shut.Load() && x.words.flags.Load()&queueStoppedFlag == 0
}

func (x *queueCore) tuning(side *queueSide) park.Tuning {
	w := side.words
	return park.Tuning{Budget: &x.words.spin, Pays: &w.pays, LastCPU: &w.lastCPU, Slot: x.name.Slot()}
}

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
// Each item is in a slot; see queueState. A ring of cells gives the order of the items; see queueCell. The slots and
// the cells are the whole state of the Queue. A Put does not hand its item to a waiter. Instead, the waiter sleeps
// until the Queue may have changed, and then checks the ring itself. A waiter for room does so, too.
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
	first    uint64 // offset of the first slot in the body
	item     uint64 // bytes
	stride   uint64

	shut    atomic.Bool   // the handle is closed or is being closed
	drained atomic.Bool   // Close reads the slots, or has read them; see awaitCalls
	seen    atomic.Uint64 // a serial number: no item of a Put with a lower number is in the queue
	watched atomic.Uint32 // the last slot that a periodic check examined
	back    returnedSlots
	tried   tryCheck
}

// queueSide has the calls that wait for items, or the calls that wait for room. A Queue has two of them.
type queueSide struct {
	words *queueSideWords
	wake  park.WakeWord
	queue *park.Queue // nil in the handle of a reaper, which cannot wait
	// there reports whether a waiter may be able to go on now. Its argument bounds how many slots it examines.
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
	x.opening.refuse, x.opening.drain, x.opening.end = x.refuse, x.drain, x.end
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

// callsMost bounds how long Close waits for calls of this process that do not block. Such a call is short, unless its
// thread is preempted. But if a peer has overwritten the slots, Close might wait for ever.
const callsMost = time.Second

// drain is what Close does after the waits of the handle have ended.
func (x *queueCore) drain() {
	x.awaitCalls()
	x.wakeLast()
}

// awaitCalls waits until no call of this process works with a slot, but at most for callsMost. The states of the
// slots show such calls. No word counts the calls that do not block, because counting would double their cost.
//
// A Put may store several states of the kind queueFull before its item is in the ring. So awaitCalls goes on waiting
// when a slot changes to that kind. A Lease first takes its item, and then stores the word of the lease. If this
// process left the arena between these two steps, the store could change the lease of another process.
//
// A call may get its slot when awaitCalls has already read the state of the slot. Such a call gives the slot back before
// it stores anything to the slot without a CAS:
//
//	the call                                   awaitCalls
//	the slot becomes claimed, taken or leased  drained := true
//	load of drained                            load of the state of the slot
//
// So awaitCalls waits for the call, or the call finds drained set.
func (x *queueCore) awaitCalls() {
	x.drained.Store(true)
	var until time.Time
	x.each(func(i uint32, s *queueSlot, was queueState) {
		for st := was; (st == was || st.kind() == queueFull) && x.inCall(i, s, st); st = queueState(s.state.Load()) {
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

// inCall reports whether a call of this process works with slot i, whose state is st.
func (x *queueCore) inCall(i uint32, s *queueSlot, st queueState) bool {
	switch {
	case st.participant() != x.name:
		return false
	case st.kind() == queueLeased:
		return !queueLeaseWord(s.lease.Load()).noted()
	}
	return st.busy() && !x.published(i, st)
}

// end ends the waits through this handle, for items and for room.
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

// open reports whether a Put may begin. If it returns false, the handle is closed or the Queue was shut down, and
// the caller has to find out which.
func (x *queueCore) open() bool {
	return !x.shut.Load() && x.words.flags.Load()&queueStoppedFlag == 0
}

func (x *queueCore) tuning(side *queueSide) park.Tuning {
	w := side.words
	return park.Tuning{Budget: &x.words.spin, Pays: &w.pays, LastCPU: &w.lastCPU, Slot: x.name.Slot()}
}

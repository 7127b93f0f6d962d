package prims

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// waitableCore is the part of a handle on a Waitable that does not depend on the types S and E. A process that
// has no rules, such as a tool, needs only this part.
//
// The state is in one of several images. The recordedWord current names the valid image. A change runs a rule on a
// private copy of that image. It writes the result to another image, which belongs to the slot of this participant.
// Then it makes a record that stores the name of the new image in current. So nobody holds a lock in the arena while a
// rule runs. If another process has made a change meanwhile, the record does not take effect, and the rule runs again
// on the new state. See docs/design/0060.
type waitableCore struct {
	recordQueue
	slots recordSlots[waitableSlot]
	own   *waitableRecord // the slot record of this participant; nil in the handle of a tool or a reaper
	words *waitableWords
	shape waitableShape
	name  arenakernel.ParticipantID
	// blocks are the additional blocks that this handle knows; see findBlocks.
	blocks atomic.Pointer[waitableBlocks]
	// lastHold is the index, among the holds in blocks, of the hold that was found last. guarded by: private
	lastHold int
	// room is the head of the list of slot records before the last search for a hold. guarded by: private
	room    uint32
	tried   tryCheck
	opening *opening
	// updating marks a goroutine that runs the function of an Update. If several goroutines do so, updating marks one
	// of them, and the variable running lists the others.
	updating goroutineMark
	// inRule marks the goroutine that runs rules for a call of this handle.
	inRule goroutineMark
	*waitableShared
}

// waitableShared is what all handles of this process on a Waitable share.
type waitableShared struct {
	lock   sync.Mutex  // recordQueue.private points to it
	missed atomic.Bool // a reap is still due, because reapDead found the lock taken
	// ruling marks the goroutine that runs rules while the lock is held.
	ruling goroutineMark
}

// waitableSlot is the slot record of one participant, and the index of its slot.
type waitableSlot struct {
	slot   int
	record *waitableRecord
}

// The kinds of the words of a Waitable that records change, beside the words of the queue. A record names a word of a
// hold by its kind and the index of the hold; see holdAt.
const (
	waitableCurrentWord = recordOwnKinds + iota
	waitableStoppedWord
	waitableLostWord
	waitableNameWord
	waitableLowWord
	waitableHighWord
	waitableCountWord
	waitableGrantedWord
)

// openCore prepares x, a new handle on o. If bare is set, the handle is for a reaper or a tool, and cannot wait.
func (x *waitableCore) openCore(a *arenakernel.Arena, o arenakernel.Object, shape waitableShape, bare bool) error {
	w, counts := waitableAt(a, o)
	x.words, x.shape, x.name = w, shape, a.Self()
	x.blocks.Store(&waitableBlocks{})
	x.init(a, o, recordQueueWords{&w.commit, &w.first, &w.last, &w.spin, &w.pays, &w.lastCPU, counts}, x)
	x.slots = recordSlots[waitableSlot]{
		a: a, object: o, size: shape.record(), slotOf: func(r waitableSlot) int { return r.slot },
		view: func(off arenakernel.Offset, slot int) waitableSlot {
			return waitableSlot{slot, arenakernel.SlotRecordAt[waitableRecord](a, off)}
		},
	}
	if err := x.slots.open(!bare); err != nil || bare {
		return err
	}
	own, ok := x.slots.of(x.slot)
	if !ok {
		return x.corrupt("its list of slot records")
	}
	x.own = own.record
	return nil
}

// openWaits prepares x for waits. The function check is called ten times a second while a goroutine of this process
// waits, and after each death. The function torn examines the wait of a node; see isTorn.
func (x *waitableCore) openWaits(check func(), torn func(s *park.WaitNode) bool) {
	w := x.words
	x.opening = newOpening(x.a, x.object)
	x.queue = park.NewQueue(park.Config{
		WaitList: park.WaitList{Arena: x.a, Word: &w.wake, Raw: wordPtr(&w.wake), Poller: &w.poller},
		Object:   x.object, Word: x.object.Body + waitableWakeOff, All: true, Check: check, Torn: torn,
	})
	x.opening.waitsIn(x.queue)
	x.opening.end = x.queue.Close
	x.opening.inside = markedFunc{&x.updating, "the function of an Update"}
	x.opening.insideRule = markedFunc{&x.inRule, "a rule"}
	// A rule runs with the private lock held. So the lock belongs to this object alone, and no other object waits for it.
	x.waitableShared = common[waitableShared](x.opening)
	x.private = &x.lock
}

// recordAt returns the record of the participant in a slot. The recordQueue calls it.
func (x *waitableCore) recordAt(slot int) (r recordPlaces, ok bool) {
	at := x.slotRecord(slot)
	if at == nil {
		return r, false
	}
	return recordPlaces{&at.record.head, &at.record.kinds, &at.record.entries}, true
}

// slotRecord returns the slot record of a slot, or nil if there is none.
func (x *waitableCore) slotRecord(slot int) *waitableRecord {
	if x.own != nil && slot == x.slot {
		return x.own
	}
	return x.otherRecord(slot)
}

// otherRecord returns the slot record of any slot, or nil if there is none.
func (x *waitableCore) otherRecord(slot int) *waitableRecord {
	s, _ := x.slots.of(slot)
	return s.record
}

// wordAt returns the word of x to which a record refers. The parameters kind and where are those of the record. The
// recordQueue calls wordAt.
func (x *waitableCore) wordAt(kind uint8, where uint32) *atomic.Uint64 {
	switch kind {
	case waitableCurrentWord:
		return &x.words.current
	case waitableStoppedWord:
		return &x.words.stopped
	case waitableLostWord:
		return &x.words.lostBy
	}
	h := x.holdAt(where)
	if h == nil {
		return nil
	}
	switch kind {
	case waitableNameWord:
		return &h.name
	case waitableLowWord:
		return &h.extraLow
	case waitableHighWord:
		return &h.extraHigh
	case waitableCountWord:
		return &h.count
	case waitableGrantedWord:
		return &h.granted
	}
	return nil
}

// removed implements recordedObject. It has nothing to do.
func (x *waitableCore) removed(*recordedChange) {}

func (x *waitableCore) corrupt(detail string) error {
	return x.fail("waitable.change", shmsync.ErrCorrupt, nil, detail)
}

func (x *waitableCore) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return failed(x.a, x.object, op, err, who, detail)
}

func (x *waitableCore) closed() error {
	return x.fail("waitable.wait", shmsync.ErrClosed, nil, closedHandle)
}

// spare returns the name of an image to which this participant may write: one of the two in its slot record that is not
// valid. Only a record of this participant could make that image valid, and the caller holds x.private. Another process
// may still be copying an older state from the image. After the copy, it finds that the word current has changed, and
// copies again.
func (x *waitableCore) spare(c *recordedChange) uint32 {
	first := uint32(2 * x.slot)
	if c.get(&x.words.current) == first {
		return first + 1
	}
	return first
}

// lostIn returns the participant that made x not recoverable, according to the state that the change c has
// found, or 0.
func (x *waitableCore) lostIn(c *recordedChange) arenakernel.ParticipantID {
	return arenakernel.ParticipantID(c.get(&x.words.lostBy) & arenakernel.ParticipantIDMask)
}

func (x *waitableCore) stoppedIn(c *recordedChange) bool { return c.get(&x.words.stopped) != 0 }

// lost reports whether x is not recoverable, because a rule has panicked or ended its goroutine.
func (x *waitableCore) lost() bool { return x.lostBy() != 0 }

// lostBy returns the participant that made x not recoverable, or 0.
func (x *waitableCore) lostBy() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(valueIn(&x.words.lostBy) & arenakernel.ParticipantIDMask)
}

// notRecoverable returns the error of an operation on x. The parameter by is the participant that has made x not
// recoverable.
func (x *waitableCore) notRecoverable(op string, by arenakernel.ParticipantID) error {
	return x.fail(op, shmsync.ErrNotRecoverable, x.a.Who(by), "a rule did not return: "+x.textOf(by))
}

func (x *waitableCore) wasStopped() error {
	return x.fail("waitable.wait", shmsync.ErrCanceled, nil, "it was stopped")
}

package arenakernel

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.slotrecord.claimed")
	_ = crashpoint.Register("arena.slotrecord.before_push")
	_ = crashpoint.Register("arena.slotrecord.pushed")
	_ = crashpoint.Register("arena.slotrecord.freeing")
)

// A slot record is a block that belongs to an object and to a slot. The participant in the slot writes
// there what it holds of the object. An object gets the record of a slot when a participant of that
// slot opens the object for the first time. So the size of an object depends on the slots that have
// used it. The next participant of the slot inherits the record, which exists until the object is
// deleted.
//
// The list of slot records also has the object's additional blocks, that is, blocks that participants have
// added to the object because it needed more room. An additional block stays until the object is deleted, as a
// slot record does.
//
// The list of an object's records begins in the header of the object. Records are pushed at the
// front, and no record leaves the list before the object is deleted. A participant stores into its
// record only after the push:
//
//	participant                         peer
//	pushes its record                   changes a word of the object, such as a gate
//	stores into its record              loads the head of the list
//	loads the word of the object        loads each record of the list
//
// All these operations are seq-cst. So the participant sees the change, or the peer sees the record and
// the value that was stored.
//
// crash: if a participant dies while its new record is still claimed, the record is kept if it is on the
// list, and freed otherwise; see [core.keepRecord]. A deletion that was interrupted is repeated from the
// start of the list; see [core.freeRecords].
//
// The first bytes of a record are its header:
//
//	0..7    next    offset of the next record of the object; 0 at the end. Never changes after the push
//	8..15   object  offset of the object. Set before the push
//	16..19  slot    the slot. Set before the push
//	20..23  number  0 in a slot record. In an additional block, one more than the number of the
//	                next additional block on the list; 1 if there is none. Never changes
//	                after the push
//
// So the numbers of the additional blocks fall along the list. A walk of the list stops if a number
// is not less than the one before, or if a slot comes a second time. Therefore each walk ends, even
// if a peer has made the list a circle.
const (
	recordNext   = 0
	recordObject = 8
	recordSlot   = 16
	recordNumber = 20
)

// objRecords is the offset of a field of an object header. The field contains the offset of the first
// slot record, divided by linkUnit, or 0.
//
//	writers: SlotRecord, by CAS; releaseUnseen, in a claimed block
//	readers: all participants
//	order:   seq_cst
//	futex:   none
//	crash:   a record is on the list, or it is not
const objRecords = 56

// objOfKind is the offset of a field of an object header. The kind of the object defines the field,
// which is 0 in a new object. For an RWMutex it is the gate, the word that makes readers wait for a
// writer.
const objOfKind = 60

// linkUnit is the unit of the offset in the field at objRecords. As this field has 32 bits, records
// can be only in the first 256 GiB of an arena.
const linkUnit = blockMin

// WordOfKind returns the word in the header of o that the kind of o defines. The other words in its
// cache line hardly ever change.
func (a *Arena) WordOfKind(o Object) *atomic.Uint32 { return a.u32(o.Offset + objOfKind) }

// firstRecord returns the offset of the first slot record of an object, or 0.
func (c *core) firstRecord(object Offset) Offset {
	return Offset(c.u32(object+objRecords).Load()) * linkUnit
}

// makeRecordWord returns the block word of a slot record. The word says that the block is raw and
// belongs to a participant of generation 0. No participant has this generation.
func makeRecordWord(slot int) blockWord { return makeBlock(blockRaw, makeParticipantID(slot, 0)) }

// recordSlot returns the number of the slot if w is the block word of a slot record. Otherwise it
// returns 0.
func (w blockWord) recordSlot() int {
	if n := w.participant(); w.kind() == blockRaw && n.Generation() == 0 {
		return n.Slot()
	}
	return 0
}

// SlotRecord returns the block, of at least size bytes, in which the object o keeps data for this
// participant's slot. If there is no such record yet, SlotRecord makes a new one. After the first
// [SlotRecordHeader] bytes, a new record is zero. If even the headroom has not enough room, the
// error Is [shmsync.ErrNoSpace].
//
// Preconditions: this participant has o open, or visits o in a reap.
func (a *Arena) SlotRecord(o Object, size uint64) (Offset, error) {
	return a.addRecord(func() (Offset, error) {
		slot, found := a.mySlot, Offset(0)
		if err := a.EachSlotRecord(o, size, func(off Offset, of int) bool {
			if of == slot {
				found = off
			}
			return found == 0
		}); err != nil || found != 0 {
			return found, err
		}
		return a.pushRecord(o.Offset, slot, size, 0, nil)
	})
}

// AddBlock adds a block of at least size bytes to the object o. AddBlock calls the function init with
// the offset of the block before other participants can find the block. At that time the block is
// zero after its first [SlotRecordHeader] bytes. The block is deleted with the object. If there is
// not enough room, the error Is [shmsync.ErrNoSpace].
//
// The argument head is a value of the word SlotRecords, which the caller has loaded before it found that o
// needs a block. If the word has another value now, another call may have added the block. Then AddBlock adds
// nothing, and returns 0 without an error.
//
// Preconditions: this participant has o open.
func (a *Arena) AddBlock(o Object, size uint64, head uint32, init func(off Offset)) (Offset, error) {
	return a.addRecord(func() (Offset, error) { return a.pushRecord(o.Offset, a.mySlot, size, head, init) })
}

// addRecord calls add, unless this participant closes the arena.
func (a *Arena) addRecord(add func() (Offset, error)) (Offset, error) {
	if err := a.BeginCall("arena.record"); err != nil {
		return 0, err
	}
	defer a.EndCall()
	a.records.Lock()
	defer a.records.Unlock()
	if a.closing.Load() {
		return 0, a.ClosedError("arena.record")
	}
	return add()
}

// pushRecord makes the slot record of an object for the given slot. If init is not nil, pushRecord makes an
// additional block instead, and init initializes the block. In this case, the parameter named first is the
// value that the word objRecords must still have. If the word has another value, pushRecord does nothing and
// returns 0.
//
// pushRecord pushes the record on the object's list while the block is still marked as claimed. So if
// the participant dies before the push, its reaper frees the record like other claimed blocks.
func (c *core) pushRecord(object Offset, slot int, size uint64, first uint32, init func(off Offset)) (Offset, error) {
	head := c.u32(object + objRecords)
	off, err := c.claimListed(max(size, SlotRecordHeader), init == nil && head.Load() != 0)
	if err != nil {
		if init != nil && head.Load() != first {
			return 0, nil
		}
		return 0, err
	}
	c.u64(off + recordObject).Store(uint64(object))
	c.u32(off + recordSlot).Store(uint32(slot))
	c.u32(off + recordNumber).Store(0)
	if init != nil {
		init(off)
	}
	crashpoint.Hit("arena.slotrecord.claimed")
	for {
		if init == nil {
			first = head.Load()
		}
		c.u64(off + recordNext).Store(uint64(first) * linkUnit)
		if init != nil {
			number, err := c.lastNumber(object, Offset(first)*linkUnit)
			if err == nil && number == math.MaxUint32 {
				err = c.noSpace(size, roomOfAll)
			}
			if err != nil {
				c.unclaim(off)
				return 0, err
			}
			c.u32(off + recordNumber).Store(number + 1)
		}
		crashpoint.Hit("arena.slotrecord.before_push")
		// sync(arena.slotrecord): release
		if head.CompareAndSwap(first, uint32(off/linkUnit)) {
			break
		}
		if init != nil {
			c.unclaim(off)
			return 0, nil
		}
	}
	crashpoint.Hit("arena.slotrecord.pushed")
	b, ok := c.locate(off)
	if !ok || !b.swap(makeBlock(blockClaimed, c.self), makeRecordWord(slot)) {
		return 0, c.meddled(off)
	}
	return off, nil
}

// SlotRecordHeader is how many bytes at the beginning of a slot record are used by this package.
const SlotRecordHeader = 32

// SlotRecords returns the word that contains the place of the latest slot record of o. The word
// changes whenever o gets a record.
func (a *Arena) SlotRecords(o Object) *atomic.Uint32 { return a.u32(o.Offset + objRecords) }

// EachSlotRecord calls f for the slot records of o, the latest first, until f returns false. Each
// record has at least size bytes. If the list contains anything but such records, or two records of
// the same slot, the error Is [shmsync.ErrCorrupt].
//
// Preconditions: this participant has o open, or guards it.
func (a *Arena) EachSlotRecord(o Object, size uint64, f func(off Offset, slot int) bool) error {
	// sync(arena.slotrecord): acquire
	return a.eachRecordFrom(o.Offset, a.firstRecord(o.Offset), func(b block, slot int, number uint32) (more, ok bool) {
		return number != 0 || f(b.off, slot), number != 0 || b.size >= size
	})
}

// EachAddedBlock walks the list of slot records of o, and calls f for each additional block on it, the latest
// first. The function f gets the offset and the size of the block. Each block has at least size bytes.
//
// The parameter head is a value that the word SlotRecords had: the walk begins with the record that was the
// latest one at that time. The parameter until is an earlier value of the word, or 0. If it is not 0, the walk
// ends before the record that was the latest one at that earlier time. If the list contains anything but slot
// records and additional blocks, or does not lead from head to until, the error Is [shmsync.ErrCorrupt].
//
// Preconditions: this participant has o open, or guards it.
func (a *Arena) EachAddedBlock(o Object, size uint64, head, until uint32, f func(off Offset, has uint64)) error {
	met := until == 0
	err := a.eachRecordFrom(o.Offset, Offset(head)*linkUnit, func(b block, _ int, number uint32) (more, ok bool) {
		switch {
		case uint32(b.off/linkUnit) == until:
			met = true
			return false, true
		case number != 0 && b.size < size:
			return false, false
		case number != 0:
			f(b.off, b.size)
		}
		return true, true
	})
	if err == nil && !met {
		err = a.fail("arena.record", shmsync.ErrCorrupt, fmt.Sprintf("the list of slot records of the object at %v has lost records", o.Offset))
	}
	return err
}

// eachRecord calls f for the slot records and the additional blocks of an object, the latest first,
// until f returns false.
func (c *core) eachRecord(object Offset, f func(b block, slot int) bool) error {
	// sync(arena.slotrecord): acquire
	return c.eachRecordFrom(object, c.firstRecord(object), func(b block, slot int, _ uint32) (more, ok bool) {
		return f(b, slot), true
	})
}

// eachRecordFrom calls f for the records of an object, until the first result of f is false. It begins with the
// record at the offset off. If the second result of f is false, the record cannot belong to the object, and
// eachRecordFrom returns an error.
func (c *core) eachRecordFrom(object, off Offset, f func(b block, slot int, number uint32) (more, ok bool)) error {
	var seen slotSet
	last := uint64(1 << 32)
	for off != 0 {
		b, slot, ok := c.recordAt(object, off)
		more := false
		if ok {
			number := c.peek32(off + recordNumber)
			if number == 0 {
				ok = !seen.has(slot)
				seen[slot/32] |= 1 << (slot % 32)
			} else {
				ok = uint64(number) < last
				last = uint64(number)
			}
			if ok {
				more, ok = f(b, slot, number)
			}
		}
		if !ok {
			return c.fail("arena.record", shmsync.ErrCorrupt,
				fmt.Sprintf("the list of slot records of the object at %v has no record at %v", object, off))
		}
		if !more {
			return nil
		}
		off = Offset(c.u64(off + recordNext).Load())
	}
	return nil
}

// lastNumber searches the list of an object's records for the first additional block. The search begins
// with the record at the offset off. The result is the number of the block, or 0 if there is none.
func (c *core) lastNumber(object, off Offset) (last uint32, err error) {
	err = c.eachRecordFrom(object, off, func(_ block, _ int, number uint32) (more, ok bool) {
		last = number
		return number == 0, true
	})
	return last, err
}

// recordAt returns the slot record of an object at off. The offset may have come from a peer. The maker of the
// record may not have published the block yet. The last result is false if there is no record.
func (c *core) recordAt(object, off Offset) (b block, slot int, ok bool) {
	b, ok = c.locate(off)
	if !ok || b.class == classNode {
		return b, 0, false
	}
	slot = int(c.peek32(off + recordSlot))
	if slot < 1 || slot > c.geo.slots || c.peek64(off+recordObject) != uint64(object) {
		return b, 0, false
	}
	if w := b.load(); w != makeRecordWord(slot) && !(w.kind() == blockClaimed && w.participant().Slot() == slot) {
		return b, 0, false
	}
	return b, slot, true
}

// isRecord reports whether the block b, whose block word is w, is a slot record. A block that is
// still marked as claimed is a slot record if it is on the list of its object.
//
// Preconditions: as for listsRecord, unless b is published.
func (l *recordLists) isRecord(b block, w blockWord) bool {
	if w.kind() != blockClaimed {
		return w.recordSlot() != 0
	}
	object := Offset(l.peek64(b.off + recordObject))
	o, ok := l.locate(object)
	return ok && o.size >= objectHeader && o.load().kind() == blockObject && l.has(object, b)
}

// recordWords returns how many bytes at the beginning of the slot record b contain no user data. The second result
// is false if the number is not known, because the object is being deleted, is of a kind that this process does not
// know, or is damaged.
func (a *Arena) recordWords(b block) (n uint64, known bool) {
	o, ok := a.locate(Offset(a.peek64(b.off + recordObject)))
	if !ok || o.load().kind() != blockObject {
		return 0, false
	}
	h, err := a.readHeader(o)
	if err != nil {
		return 0, false
	}
	ops, known := opsOf(h.Object)
	if n = ops.RecordWords; n == 0 {
		n = b.size
	}
	return min(n, b.size), known
}

// keepRecord publishes a block that a dead participant had claimed, if the block is on the list of
// records of an object. It reports whether the block is on such a list. Only the list shows that the
// block is a record: the bytes of a claimed block may have any value.
//
// The caller is the reaper of the dead participant, and has locked c.handles. If keepRecord returns
// false, and the word of the block is still w after the call, the dead participant has not pushed
// the block, and no other participant changes the word.
//
// If a peer has damaged the list, the block may have been on the list before the damage, and open
// handles may still use it. So in this case keepRecord keeps every block that could be a record of
// the list.
func (c *core) keepRecord(b block, w blockWord) bool {
	object := Offset(c.peek64(b.off + recordObject))
	// While the object is guarded, its list loses no record: a deleter either sees the guard, or has already
	// changed the block word of the object. keepRecord loads this block word only once, because a deleter may
	// change it between two loads.
	c.guard(object)
	defer c.unguard()
	o, ok := c.locate(object)
	if !ok || o.size < objectHeader {
		return false
	}
	switch o.load().kind() {
	case blockObject:
	case blockFreeing:
		// The process that deletes the object frees the published records on the object's list, so
		// this record must be published first.
		if c.listsRecord(object, b) {
			b.swap(w, makeRecordWord(int(c.peek32(b.off+recordSlot))))
			return true
		}
		return false
	default:
		return false
	}
	if now, ok := c.locate(object); !ok || now != o {
		return false
	}
	slot := 0
	err := c.eachRecord(object, func(r block, of int) bool {
		if r == b {
			slot = of
		}
		return slot == 0
	})
	if err != nil {
		_, slot, _ = c.recordAt(object, b.off)
	}
	if slot == 0 {
		return false
	}
	b.swap(w, makeRecordWord(slot))
	return true
}

// publishRecords publishes the slot records of an object that is being freed, that is, changes
// their block words from claimed to raw. If the maker of a record died before it published the
// record, its reaper may not have done so yet. No living participant has the object open.
func (c *core) publishRecords(object Offset) {
	c.eachRecord(object, func(b block, slot int) bool {
		if w := b.load(); w.kind() == blockClaimed {
			b.swap(w, makeRecordWord(slot))
		}
		return true
	})
}

// freeRecords frees the slot records of an object. The block of the object is being freed by this
// process, or by a dead process that this process reaps. freeRecords begins at the end of the list.
// So if it is interrupted, the next call finds the records that are left. The next call stops at the
// first record that is already freed, because its block may be in use for something else.
func (c *core) freeRecords(object Offset) {
	type record struct {
		block
		word blockWord
	}
	var all []record
	c.eachRecord(object, func(b block, slot int) bool {
		w := makeRecordWord(slot)
		if b.load() != w {
			return false
		}
		all = append(all, record{b, w})
		return true
	})
	for i := len(all) - 1; i >= 0; i-- {
		c.release(all[i].block, all[i].word) // does nothing if a peer has changed the word of the block meanwhile
		crashpoint.Hit("arena.slotrecord.freeing")
	}
}

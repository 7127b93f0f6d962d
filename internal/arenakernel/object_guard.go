package arenakernel

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.object.found")
	_ = crashpoint.Register("arena.object.entered")
	_ = crashpoint.Register("arena.object.bit_set")
	_ = crashpoint.Register("arena.object.cancelling")
)

// slotOpening is a field of a slot: the offset of the object header that the participant is about to
// read, or 0. While the field contains this offset, the block of the object is not reused. It is a
// hazard pointer. An object that the participant has open needs no such guard.
//
//	writers: the owner
//	readers: a participant that frees the block of an object
//	order:   seq_cst: the guard is set before the object is looked up again, and the
//	         object is made unfindable before the guards are read
//	futex:   none
//	crash:   the guard of a dead participant does not count; clearOpenBits clears it
const slotOpening Offset = 224

// slotWalking is a field of a slot that prevents the reuse of an object's block, as slotOpening
// does. Reaps and checks use it while they walk over the objects and read their bodies. Unlike an
// open bit, this guard does not prevent the deletion of an object.
//
// While this field is not 0, the participant in the slot may still have to wake waiters of any
// participant. The value walkOwed says only that, and guards no object.
//
// What the comment at slotOpening says about writers, readers, order and crashes is true for
// slotWalking, too.
const slotWalking Offset = 232

// walkOwed is the value of slotWalking while a participant may have to wake waiters and guards no
// object. No object is at this offset.
const walkOwed Offset = 1

// openLocal is what this process knows about the objects that it has open. The slot of this process
// has only one word that guards an object during a lookup, so the mutex lets one lookup run at a
// time.
type openLocal struct {
	sync.Mutex
	walking  sync.Mutex          // held during a walk, which uses slotWalking as its guard
	rest     Offset              // guarded by: walking; the value of slotWalking between walks
	refs     map[Offset]*openRef // guarded by: Mutex
	left     bool                // guarded by: Mutex; this participant is giving up its slot, and clears its open bits
	deferred []Offset            // guarded by: Mutex; blocks that this process is freeing, and that a peer guarded
	passed   uint64              // guarded by: Mutex; how many removed entries searches have met since the reach was lowered
	// lowerAfter delays the next attempt to lower the reach, that is, how far a search for a name goes. Before this
	// attempt, searches have to pass more removed entries than lowerRatio requires: lowerAfter entries more.
	lowerAfter uint64 // guarded by: Mutex
}

// openRef is an object that this process has open, as recorded in the private memory of this
// process.
type openRef struct {
	header
	count int // number of opens that have not been closed
	// kept means that the open bit was set before this process opened the object. So a dead
	// predecessor in this slot had the object open, and its transaction may not be undone yet.
	kept bool
}

// guard prevents the reuse of the object's block at off until a call of unguard. The object may
// have been deleted before the guard was set, so the caller looks the object up again after the
// call of guard.
func (c *core) guard(off Offset) {
	// sync(arena.guard): release
	c.u64(c.slot(c.self.Slot()) + slotOpening).Store(uint64(off))
}

func (c *core) unguard() { c.guard(0) }

// guarded reports whether a participant guards the block at off.
func (c *core) guarded(off Offset) bool {
	for i := 1; i <= c.geo.slots; i++ {
		s := c.slot(i)
		// sync(arena.guard): acquire
		here := c.u64(s+slotOpening).Load() == uint64(off) || c.u64(s+slotWalking).Load() == uint64(off)
		if here && c.current(participantIn(i, c.slotState(i))) {
			return true
		}
	}
	return false
}

// releaseUnseen frees a block that other participants may have found in the directory, or that was an object.
// If no participant guards the block, releaseUnseen calls release. Otherwise it only marks the block as
// freeing, and this process releases the block later.
func (c *core) releaseUnseen(b block, w blockWord) {
	if w.kind() == blockClaimed {
		// A claimed block has no slot records. But if its participant died before it had cleared
		// the block, the bytes may be those of an earlier object, and may name a block that another
		// participant has claimed.
		c.u32(b.off + objRecords).Store(0)
	}
	if !c.guarded(b.off) {
		// Free the wait nodes only now. While the block was guarded, a reaper could still examine
		// them.
		c.freeNodesAt(b.off)
		// Publish the slot records again. A reaper that has not opened the object may have made
		// such a record since the first call of publishRecords.
		c.publishRecords(b.off)
		c.freeRecords(b.off)
		crashpoint.Hit("arena.delete.nodes_freed")
		c.release(b, w)
		return
	}
	freeing := makeBlock(blockFreeing, c.self)
	c.touch(b.chunk)
	if w == freeing || b.swap(w, freeing) {
		c.handles.deferred = append(c.handles.deferred, b.off)
	}
}

// flushDeferred locks c.handles and calls releaseDeferred. It reports whether that released a block. An allocation
// that finds no free block calls flushDeferred, because deleted blocks that a peer guarded may be free now.
func (c *core) flushDeferred() bool {
	c.handles.Lock()
	defer c.handles.Unlock()
	return c.releaseDeferred()
}

// releaseDeferred frees the blocks in c.handles.deferred that no participant guards any more. It
// reports whether there was such a block. The caller has locked c.handles.
func (c *core) releaseDeferred() bool {
	waiting := c.handles.deferred
	c.handles.deferred = nil
	for _, off := range waiting {
		if b, ok := c.locate(off); ok {
			c.releaseUnseen(b, makeBlock(blockFreeing, c.self))
		}
	}
	return len(c.handles.deferred) < len(waiting)
}

// openBit returns the bit which says that the participant in the given slot has h open.
//
//	writers: the participant in the slot; clearOpenBits
//	readers: a participant that deletes the object
//	order:   seq_cst: an opener sets its bit and then looks at the phase, a
//	         deleter sets the phase and then looks at the bits
//	futex:   none
//	crash:   the bit of a slot whose participant is dead does not count, and is
//	         cleared before the slot is used again
func (c *core) openBit(h *header, slot int) (word *atomic.Uint32, mask uint32) {
	return c.u32(h.open + Offset(slot/32*4)), 1 << (slot % 32)
}

// openers returns the participants that have the object h open. A dead participant counts until it
// is gone, that is, until none of its system calls can write into the arena any more.
func (c *core) openers(h *header) (who []ParticipantID) {
	for i := 1; i <= c.geo.slots; i++ {
		word, mask := c.openBit(h, i)
		if word.Load()&mask == 0 {
			continue
		}
		if n := participantIn(i, c.slotState(i)); c.current(n) || !c.gone(n) {
			who = append(who, n)
		}
	}
	return who
}

// undoneFor lists the dead participants that had the object h open and whose transactions are not
// undone yet. A process that undoes such a transaction, from its undo log, may write into h.
func (a *Arena) undoneFor(h *header) (who []string) {
	for i := 1; i <= a.geo.slots; i++ {
		word, mask := a.openBit(h, i)
		if n := participantIn(i, a.slotState(i)); word.Load()&mask != 0 && !a.isCurrent(n) && a.undoing(n) {
			who = append(who, "a transaction of participant "+n.String()+", which is dead, is not undone yet")
		}
	}
	return who
}

// adopt opens the object h, which the caller guards. It returns false if the object is not
// committed.
func (c *core) adopt(h *header) (bool, error) {
	if ref := c.handles.refs[h.Offset]; ref != nil {
		ref.count++
		return true, nil
	}
	c.touch(h.block.chunk)
	word, mask := c.openBit(h, c.self.Slot())
	// sync(arena.open): release
	kept := word.Or(mask)&mask != 0
	crashpoint.Hit("arena.object.bit_set")
	for try := range claimTries * timeout {
		if try >= claimTries {
			runtime.Gosched() // each further iteration means that another deletion has begun
		}
		// sync(arena.commit): acquire
		s := h.load()
		switch {
		case s.legal() && s.phase() == objectDeleting:
			// lin: the deletion is cancelled. While this participant's bit is set, no further
			// deletion can become final.
			crashpoint.Hit("arena.object.cancelling")
			if h.swap(s, makeObject(objectCommitted, 0)) {
				c.remember(h, kept)
				return true, nil
			}
		case !s.legal():
			word.And(^mask)
			return false, c.corrupt(h.Offset, "phase")
		case s.phase() == objectCommitted:
			// The maker may have died after it had committed the object, and before it published
			// the block. So publish the block here.
			if w := h.block.load(); w.kind() == blockClaimed {
				h.block.swap(w, makeBlock(blockObject, 0))
			}
			c.remember(h, kept)
			return true, nil
		default:
			return false, nil // the deletion frees the bit together with the object
		}
	}
	word.And(^mask)
	return false, c.corrupt(h.Offset, "phase that does not settle")
}

// remember records that this process has the object h open. The parameter kept is the value for
// openRef.kept.
func (c *core) remember(h *header, kept bool) {
	if c.handles.refs == nil {
		c.handles.refs = map[Offset]*openRef{}
	}
	c.handles.refs[h.Offset] = &openRef{header: *h, count: 1, kept: kept}
}

// forget closes the object at off once. It returns false if this process does not have the object
// open. The caller has locked a.handles.
func (a *Arena) forget(off Offset) bool {
	ref := a.handles.refs[off]
	if ref == nil {
		return false
	}
	if ref.count--; ref.count == 0 {
		delete(a.handles.refs, off)
		if !ref.kept || !a.undoing(a.self) { // otherwise a rollback may still write into the object
			word, mask := a.openBit(&ref.header, a.self.Slot())
			word.And(^mask)
		}
	}
	return true
}

// clearOpenBits clears the bits and words by which a dead participant kept objects from being
// deleted and their blocks from being reused.
//
// Preconditions: as for reclaimBlocks.
func (c *core) clearOpenBits(dead ParticipantID) {
	c.handles.Lock()
	defer c.handles.Unlock()
	clearBit := func(h *header) {
		word, mask := c.openBit(h, dead.Slot())
		if word.Load()&mask != 0 {
			word.And(^mask)
		}
	}
	c.eachTouched(dead.Slot(), func(chunk uint64) {
		c.eachBlockOf(chunk, func(off Offset, _ uint64, w blockWord) bool {
			switch w.kind() {
			case blockObject:
				c.withObject(off, clearBit)
			case blockClaimed:
				// The block may contain an object that is committed, and whose maker has not
				// published the block. Such an object can be found only by its name.
				c.withUnpublished(off, clearBit)
			}
			return true
		})
	})
	c.u64(c.slot(dead.Slot()) + slotOpening).Store(0)
	c.u64(c.slot(dead.Slot()) + slotWalking).Store(0)
}

// withObject calls f for the object at off, if there is one. It guards the object during the call.
// The caller has locked c.handles.
func (c *core) withObject(off Offset, f func(h *header)) {
	c.guard(off)
	defer c.unguard()
	if h, err := c.headerAt(off); err == nil && h.load().there() {
		f(&h)
	}
}

// withUnpublished does what the method withObject does, for an object that is committed while its
// block is still marked as claimed by the maker. The bytes of a claimed block may have any value, so
// the directory has to show that there is an object.
func (c *core) withUnpublished(off Offset, f func(h *header)) {
	b, ok := c.locate(off)
	if !ok || b.class == classNode {
		return
	}
	h, err := c.readHeader(b)
	if err != nil || h.Name == "" || !objectWord(c.peek32(off+objState)).there() {
		return
	}
	c.probe(h.hash, func(pos uint64, e entry) bool {
		if e != makeEntry(off, h.hash) {
			return true
		}
		defer c.unguard()
		if h, ok, err := c.enter(pos, e); ok && err == nil && h.load().there() {
			f(&h)
		}
		return false
	})
}

// corrupt returns the error for an object in an impossible state.
func (c *core) corrupt(off Offset, what string) error {
	return c.fail("arena.object", shmsync.ErrCorrupt, "the object at "+off.String()+" has an impossible "+what)
}

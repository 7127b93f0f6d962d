package arenakernel

import (
	"runtime"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// entry is a word of the directory.
//
//	bits 0..47   offset of an object header
//	bits 48..63  the same bits of the hash of its name
//
//	value     meaning                                            left by
//	0         empty, and always was: a search ends here          creator
//	all ones  a name was here; may be reused, ends no search     unlist
//	else      an object in any phase, whose block is not free    place
//
// An entry never becomes empty again, so every search for a name reaches the entry that was placed
// for it. After long use there may be no empty entry left to end a search, so a search also ends at
// the distance that the method reach returns.
//
// crash: reclaimBlocks removes the entries of the blocks that it recovers.
type entry uint64

const (
	entryEmpty entry = 0
	entryGone  entry = 1<<64 - 1

	// timeout is a number of checks. If another participant has not finished its work after this many
	// checks, the checking participant does the work itself.
	timeout = 64
)

func makeEntry(off Offset, hash uint64) entry {
	return entry(off)&(1<<48-1) | entry(hash)&^(1<<48-1)
}

func (e entry) used() bool               { return e != entryEmpty && e != entryGone }
func (e entry) offset() Offset           { return Offset(e & (1<<48 - 1)) }
func (e entry) mayBe(hash uint64) bool   { return e.used() && uint64(e)>>48 == hash>>48 }
func (c *core) entryOff(p uint64) Offset { return Offset(c.geo.dirOff + p*8) }
func (c *core) loadEntry(p uint64) entry { return entry(c.u64(c.entryOff(p)).Load()) }

func (c *core) swapEntry(p uint64, old, to entry) bool {
	return c.u64(c.entryOff(p)).CompareAndSwap(uint64(old), uint64(to))
}

// reach is how far a search goes from the entry that the hash of the name selects. It stays small
// while the directory has more entries than names, because a new name takes the first unused entry.
//
//	writers: a participant that places an entry further away, before and after it does so, by CAS
//	         upwards; lowerReach
//	readers: searches, at their start
//	order:   seq_cst: the maker of an object raises the reach, places the entry, raises the reach again,
//	         and then reads the reach for its own search. So if two participants make objects of one
//	         name, the later one finds the entry of the earlier one
//	futex:   none
//	crash:   may be greater than necessary: searches take longer
//
// While a participant lowers the reach, searches use the previous value; see hdrDirLowering.
func (c *core) reach() uint64 {
	for range reachTries {
		// sync(arena.reach): acquire
		w := lowering(c.u64(hdrDirLowering).Load())
		r := uint64(c.u32(hdrDirReach).Load())
		if w.busy() {
			r = max(r, w.before())
		}
		if lowering(c.u64(hdrDirLowering).Load()) == w {
			return min(r, c.geo.dirCount-1)
		}
	}
	return c.geo.dirCount - 1
}

const reachTries = 16

// raiseReach raises the reach to at least k.
func (c *core) raiseReach(k uint64) {
	word := c.u32(hdrDirReach)
	for {
		r := word.Load()
		// sync(arena.reach): release
		if uint64(r) >= k || word.CompareAndSwap(r, uint32(k)) {
			return
		}
	}
}

// probe calls f for the entries where a name with the given hash may be. It stops at the first
// empty entry, or when f returns false.
func (c *core) probe(hash uint64, f func(pos uint64, e entry) bool) { c.probeTo(c.reach(), hash, f) }

// probeTo calls f as the method probe does, for the entries whose distance from the first entry is
// not greater than the parameter reach.
func (c *core) probeTo(reach, hash uint64, f func(pos uint64, e entry) bool) {
	steps := uint64(0)
	defer func() { c.work.Add(steps) }()
	for k := range reach + 1 {
		steps++
		pos := (hash + k) & (c.geo.dirCount - 1)
		// sync(arena.place): acquire
		e := c.loadEntry(pos)
		if e == entryGone {
			c.handles.passed++
		}
		if e == entryEmpty || !f(pos, e) {
			return
		}
	}
}

// place puts the object at off into the directory. It returns false if the directory is full.
func (c *core) place(off Offset, hash uint64) bool {
	mine := makeEntry(off, hash)
	for k := range c.geo.dirCount {
		pos := (hash + k) & (c.geo.dirCount - 1)
		for e := c.loadEntry(pos); !e.used(); e = c.loadEntry(pos) {
			c.raiseReach(k)
			// sync(arena.place): release
			if c.swapEntry(pos, e, mine) {
				c.raiseReach(k) // again, because a participant that lowered the reach meanwhile may have missed the entry
				return true
			}
		}
	}
	return false
}

// unlist removes the object at off from the directory.
func (c *core) unlist(off Offset, hash uint64) {
	c.find(off, hash, func(pos uint64, e entry) bool { return !c.swapEntry(pos, e, entryGone) })
}

// find calls f for the entry of the object at off, wherever this entry is, until f returns false.
func (c *core) find(off Offset, hash uint64, f func(pos uint64, e entry) bool) {
	mine := makeEntry(off, hash)
	c.probeTo(c.geo.dirCount-1, hash, func(pos uint64, e entry) bool { return e != mine || f(pos, e) })
}

// enter guards the object of entry e, so that its block is not reused, and reads the object's
// header. The result named ok is false if the entry has changed or there is no object. The caller
// must call unguard in any case.
func (c *core) enter(pos uint64, e entry) (h header, ok bool, err error) {
	off := e.offset()
	crashpoint.Hit("arena.object.found")
	c.guard(off)
	if c.loadEntry(pos) != e {
		return h, false, nil
	}
	if b, ok := c.locate(off); ok {
		switch b.load().kind() {
		case blockClaimed, blockObject, blockFreeing:
			h, err := c.readHeader(b)
			crashpoint.Hit("arena.object.entered")
			return h, err == nil, err
		}
	}
	return h, false, c.fail("arena.object", shmsync.ErrCorrupt, "a name leads to "+off.String()+", where there is no object")
}

// seek finds the object with the given name and opens it. A caller that has just placed an object of that
// name in the directory is called a maker here. It passes the offset of its object as the parameter named
// mine. Other callers pass 0. For a maker, seek waits a little for pending objects of the same name that were
// placed before its own object, and then aborts them. For other callers, it skips pending objects.
//
// Each maker places its object before it calls seek. So of two makers of one name, the one that
// calls seek later finds the object of the other. That object is either committed already, or is
// aborted before its maker can commit it.
func (c *core) seek(name string, hash uint64, mine Offset) (h header, found bool, err error) {
	first := true // the objects that the search finds now were placed before the object at offset mine
	c.probe(hash, func(pos uint64, e entry) bool {
		if !e.mayBe(hash) {
			return true
		}
		if e.offset() == mine {
			first = false
			return true
		}
		defer c.unguard()
		var ok bool
		if h, ok, err = c.enter(pos, e); !ok {
			return err == nil
		}
		if h.hash != hash || h.Name != name {
			return true
		}
		if mine != 0 {
			c.outvote(&h, first)
		}
		if s := h.load(); !s.there() && s.legal() {
			return true
		}
		found, err = c.adopt(&h)
		return !found && err == nil
	})
	return h, found, err
}

// outvote aborts the object h if it is pending, that is, if its maker has not committed it yet. If
// the parameter named wait is true and the maker of h is alive, outvote first gives the maker some
// time to commit. Otherwise two makers could keep aborting each other's objects.
func (c *core) outvote(h *header, wait bool) {
	for try := 0; ; try++ {
		s := h.load()
		if s.phase() != objectPending || !s.legal() {
			return
		}
		if wait && try < timeout && c.current(s.participant()) {
			runtime.Gosched()
			continue
		}
		// lin: from here on, the maker of h has lost the name, unless it has committed h before.
		h.swap(s, makeObject(objectAborted, s.participant()))
		return
	}
}

// resolveEntries decides about the names of the objects of a dead participant. Only the reaper of
// that participant calls it. resolveEntries publishes the objects that the participant had
// committed. It removes the names of objects that the participant had not committed or had begun to
// free.
func (c *core) resolveEntries(dead ParticipantID) {
	whole := false
	c.eachTouched(dead.Slot(), func(chunk uint64) {
		c.eachBlockOf(chunk, func(off Offset, _ uint64, w blockWord) bool {
			if w.participant() == dead && (w.kind() == blockClaimed || w.kind() == blockFreeing) {
				whole = !c.resolveNameOf(off, dead) || whole
			}
			return true
		})
	})
	if whole {
		for pos := range c.geo.dirCount {
			if e := c.loadEntry(pos); e.used() {
				c.resolveGuarded(pos, e, dead)
			}
		}
		c.work.Add(c.geo.dirCount)
	}
}

// resolveNameOf does what the method resolveEntries does, for the one block at off, which the dead
// participant had claimed or was freeing. It returns false if the bytes of the block do not show
// whether the block has a name, because they may be from an earlier use of the block.
func (c *core) resolveNameOf(off Offset, dead ParticipantID) bool {
	b, ok := c.locate(off)
	if !ok || b.class == classNode {
		return true
	}
	// A maker writes the name and its hash before it places the entry. They stay in the block until
	// the block is free.
	if c.u32(off+objKind).Load() == 0 && c.u64(off+objHash).Load() == 0 {
		return true
	}
	h, err := c.readHeader(b)
	if err != nil {
		return false
	}
	if h.Name != "" {
		c.find(off, h.hash, func(pos uint64, e entry) bool {
			c.resolveGuarded(pos, e, dead)
			return false
		})
	}
	return true
}

// resolveGuarded guards the object of the entry e against being freed, and then calls resolveEntry,
// unless the entry has changed.
func (c *core) resolveGuarded(pos uint64, e entry, dead ParticipantID) {
	c.guard(e.offset())
	defer c.unguard()
	// While the block is guarded it is not reused. So if the entry still has the value e, it
	// belongs to the same object.
	if c.loadEntry(pos) == e {
		c.resolveEntry(pos, e, dead)
	}
}

func (c *core) resolveEntry(pos uint64, e entry, dead ParticipantID) {
	b, ok := c.locate(e.offset())
	if !ok {
		return
	}
	w := b.load()
	if w.participant() != dead || w.kind() != blockClaimed && w.kind() != blockFreeing {
		return
	}
	if w.kind() == blockClaimed {
		state := c.u32(b.off + objState)
		pending := makeObject(objectPending, dead)
		state.CompareAndSwap(uint32(pending), uint32(makeObject(objectAborted, dead)))
		if objectWord(state.Load()).there() {
			b.swap(w, makeBlock(blockObject, 0))
			return
		}
	}
	c.swapEntry(pos, e, entryGone)
}

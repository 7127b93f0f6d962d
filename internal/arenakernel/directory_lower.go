package arenakernel

// lowering is the word at hdrDirLowering. It tells searches whether a participant is lowering the
// reach, that is, the distance from the first possible entry up to which a search looks for a name.
// The word also contains a sequence number, from which a search sees that the reach was lowered
// during the search.
//
//	bits 0..31   the previous reach, while a participant lowers it
//	bits 32..63  a sequence, odd while a participant lowers it
//
//	lowerer                               maker that places an entry   search
//	word: odd sequence, previous reach    raises the reach if needed   reads the word
//	looks at all entries                  places the entry             uses the reach, or the previous one if greater
//	lowers the reach to the furthest      raises the reach if needed   reads the word; if it has changed, begins again
//	looks at all entries again
//	raises the reach to the furthest
//	word: even sequence
//
// The second pass over the entries finds an entry that was placed before the reach was lowered. A
// maker that places an entry later raises the reach itself. Until the sequence is even again,
// searches use the previous reach.
//
//	writers: the lowerer, whose name is in hdrDirLowerer
//	readers: searches
//	order:   seq_cst, with the reach
//	futex:   none
//	crash:   stays odd; the next lowerer begins with the second look at all entries.
//	         hdrDirLowerer may be replaced when it is not current
type lowering uint64

func (w lowering) busy() bool     { return w>>32&1 != 0 }
func (w lowering) before() uint64 { return uint64(w) & (1<<32 - 1) }

func (w lowering) begun(before uint32) lowering { return (w>>32+1)<<32 | lowering(before) }
func (w lowering) over() lowering               { return (w>>32 + 1) << 32 }

// lowerReachIfDue lowers the reach if searches of this process have passed so many removed entries
// that one pass over the whole directory would have been cheaper. The caller has locked c.handles.
func (c *core) lowerReachIfDue() {
	l := &c.handles
	if l.passed <= l.lowerAfter+lowerRatio*c.geo.dirCount {
		return
	}
	l.passed = 0
	before := c.reach()
	c.lowerReach()
	if c.reach() > before/2 {
		// There is an entry far from its first possible place, so the reach cannot be lowered much.
		// The entry may be removed soon, so the delay before the next attempt is bounded.
		l.lowerAfter = min(max(2*l.lowerAfter, lowerRatio*c.geo.dirCount), lowerDelay*c.geo.dirCount)
		return
	}
	l.lowerAfter = 0
}

// lowerRatio says when this process tries to lower the reach: when its searches have passed
// lowerRatio times as many removed entries as the directory has entries.
const lowerRatio = 2

// lowerDelay limits the delay after an attempt that could not lower the reach. The delay is a number
// of removed entries, at most lowerDelay times as many as the directory has entries.
const lowerDelay = 16

// lowerReach makes the reach as small as the entries allow, unless another participant is doing so
// already. The caller has locked c.handles.
func (c *core) lowerReach() {
	owner := c.u32(hdrDirLowerer)
	if u := ParticipantID(owner.Load()); u != c.self && c.current(u) || !takeFrom(c, u, owner, uint32(u), uint32(c.self), false) {
		return
	}
	word, reach := c.u64(hdrDirLowering), c.u32(hdrDirReach)
	w := lowering(word.Load())
	if !w.busy() {
		r := reach.Load()
		w = w.begun(r)
		word.Store(uint64(w))
		if far := c.furthest(); far < uint64(r) {
			reach.CompareAndSwap(r, uint32(far))
		}
	}
	c.raiseReach(c.furthest())
	word.Store(uint64(w.over()))
	owner.CompareAndSwap(uint32(c.self), 0)
}

// furthest returns the greatest distance of an entry from the entry that its hash selects.
func (c *core) furthest() (far uint64) {
	defer c.unguard()
	c.work.Add(c.geo.dirCount)
	for pos := range c.geo.dirCount {
		if e := c.loadEntry(pos); e.used() {
			far = max(far, c.distance(pos, e))
		}
	}
	return far
}

// distance returns how far the entry e is from the entry that its hash selects. It returns the
// greatest possible distance if the hash is not known, and 0 if the entry has changed.
func (c *core) distance(pos uint64, e entry) uint64 {
	// While the block is guarded, it is not reused. So if the entry is unchanged, the hash in the
	// block belongs to the entry.
	c.guard(e.offset())
	if c.loadEntry(pos) != e {
		return 0
	}
	if b, ok := c.locate(e.offset()); ok && b.size >= objectHeader {
		if hash := c.u64(b.off + objHash).Load(); e.mayBe(hash) {
			return (pos - hash) & (c.geo.dirCount - 1)
		}
	}
	return c.geo.dirCount - 1
}

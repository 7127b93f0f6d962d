package arenakernel

import (
	"strconv"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.alloc.before_publish")
	_ = crashpoint.Register("arena.free.before_clear")
)

// locate returns the block, or the span of whole chunks, that begins at off. It returns false if
// none begins there.
func (c *core) locate(off Offset) (block, bool) {
	b, ok := c.holding(off)
	return b, ok && b.off == off
}

// holding returns the block, or the span of whole chunks, that contains off.
func (c *core) holding(off Offset) (block, bool) {
	if uint64(off) < c.geo.heapOff || (uint64(off)-c.geo.heapOff)/chunkSize >= c.geo.chunkCount {
		return block{}, false
	}
	i := (uint64(off) - c.geo.heapOff) / chunkSize
	w := c.loadChunk(i)
	if w.kind() == chunkTail && w.legal(i, c.geo.chunkCount) {
		i = w.number()
		w = c.loadChunk(i)
		if w.kind() != chunkHead {
			return block{}, false
		}
	}
	if !w.legal(i, c.geo.chunkCount) {
		return block{}, false
	}
	start := c.chunkOff(i)
	switch w.kind() {
	case chunkHead:
		size := w.number() * chunkSize
		return block{start, size, i, 0, -1, c.blockWordOf(i, 0)}, uint64(off-start) < size
	case chunkSlab, chunkSweeping:
		class := int(w.number())
		index := uint64(off-start) / uint64(classSizes[class])
		if index >= blocksOf(class) {
			return block{}, false
		}
		return c.blockIn(i, index, class), true
	}
	return block{}, false
}

func (c *core) blockIn(chunk, index uint64, class int) block {
	size := uint64(classSizes[class])
	return block{c.chunkOff(chunk) + Offset(index*size), size, chunk, index, class, c.blockWordOf(chunk, index)}
}

// blockAt returns the word and the size of the block or span that begins at off.
func (c *core) blockAt(off Offset) (w blockWord, size uint64, ok bool) {
	b, ok := c.locate(off)
	if !ok {
		return 0, 0, false
	}
	return b.load(), b.size, true
}

// publish turns a block that this participant has claimed into a raw block (a block of Alloc), an
// object or a wait node.
func (c *core) publish(off Offset, kind int) error {
	b, ok := c.locate(off)
	// sync(arena.publish): release
	if !ok || !b.swap(makeBlock(blockClaimed, c.self), makeBlock(kind, 0)) {
		return c.meddled(off)
	}
	return nil
}

// meddled returns the error for a block that this participant has claimed and another process has
// changed.
func (c *core) meddled(off Offset) error {
	return c.fail("arena.alloc", shmsync.ErrCorrupt, "the block at "+off.String()+" was changed while claimed")
}

// unclaim frees a block that this participant has claimed and not published, so that no other
// process knows of it.
func (c *core) unclaim(off Offset) {
	if b, ok := c.locate(off); ok {
		c.release(b, makeBlock(blockClaimed, c.self))
	}
}

// release frees the block or span b, whose block word is w. The kind in w is claimed or freeing.
// The participant in w is this process, or a dead process that this process reaps.
func (c *core) release(b block, w blockWord) {
	if b.class < 0 {
		c.dismantle(b.chunk)
	}
	// sync(arena.block): release
	b.swap(w, blockFree)
	if b.class >= 0 {
		c.heap.next[b.class].Store(b.chunk*blockWords + b.index)
	}
}

// Alloc returns size bytes of the arena, zeroed, at an offset that is a multiple of align and of
// 64. The argument align is 0 or a power of two up to [MaxAlign]. For any other value, Alloc
// panics. The block stays allocated until a process calls Free, even after the death of this
// process, because other processes may know its offset. If this process dies inside Alloc, the
// block is freed.
//
// If there is not enough room outside of the headroom, the error Is [shmsync.ErrNoSpace].
func (a *Arena) Alloc(size, align uint64) (Offset, error) {
	if err := a.BeginCall("arena.alloc"); err != nil {
		return 0, err
	}
	defer a.EndCall()
	if align > MaxAlign || align&(align-1) != 0 {
		panic("shmsync: arena " + strconv.Quote(a.label) + ": Alloc with alignment " +
			strconv.FormatUint(align, 10) + ", which is not a power of two up to 4096")
	}
	off, err := a.claim(size, max(align, 1))
	if err != nil {
		return 0, err
	}
	crashpoint.Hit("arena.alloc.before_publish")
	if err := a.publish(off, blockRaw); err != nil {
		return 0, err
	}
	return off, nil
}

// Free frees the block at off. Alloc may have returned the block in any process. Free panics if no
// allocated block begins at off.
//
// A call of Free synchronizes with the Alloc that next returns the block.
func (a *Arena) Free(off Offset) {
	a.mustBeginCall("arena.free")
	defer a.EndCall()
	b, ok := a.locate(off)
	freeing := makeBlock(blockFreeing, a.self)
	if ok {
		a.touch(b.chunk)
	}
	if !ok || !b.swap(blockRaw, freeing) {
		what := "no block begins there"
		if ok {
			what = "the block there is " + b.load().String()
		}
		panic("shmsync: arena " + strconv.Quote(a.label) + ": Free of " + off.String() + ": " + what)
	}
	crashpoint.Hit("arena.free.before_clear")
	a.release(b, freeing)
}

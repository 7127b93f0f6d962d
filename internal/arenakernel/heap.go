package arenakernel

import (
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.alloc.claimed")
	_ = crashpoint.Register("arena.block.before_claim")
	_ = crashpoint.Register("arena.block.claimed")
	_ = crashpoint.Register("arena.chunk.claimed")
	_ = crashpoint.Register("arena.chunk.backed")
	_ = crashpoint.Register("arena.chunk.before_slab")
)

const (
	// claimTries is how often an allocation tries at most. An allocation starts over if other
	// participants are changing the chunks that it uses.
	claimTries = 64
)

// heapLocal is what this process remembers about the heap. Apart from the mutexes, all fields are
// hints, so a wrong value does no harm.
type heapLocal struct {
	next   [classes]atomic.Uint64 // chunk<<10 plus the index of the block to try first
	search [classes]slabSearch
	top    atomic.Uint64 // the chunk from which the next search for a span goes downwards
}

// A block describes a block of the heap, or a span, which consists of whole chunks: its place, its
// size and its block word.
type block struct {
	off   Offset
	size  uint64
	chunk uint64
	index uint64
	class int // or -1 for a span
	word  *atomic.Uint32
}

func (b block) load() blockWord             { return blockWord(b.word.Load()) }
func (b block) swap(old, to blockWord) bool { return b.word.CompareAndSwap(uint32(old), uint32(to)) }

func (c *core) chunk(i uint64) *atomic.Uint64 {
	return c.u64(Offset(c.geo.chunksOff + i*8))
}

func (c *core) loadChunk(i uint64) chunkWord { return chunkWord(c.chunk(i).Load()) }

// chunkFrom returns i, or for an Inspector the first chunk from i on whose word is not in a hole of the file. The
// chunks that an Inspector skips are free. A file can have any size, because its holes cost nothing, so an Inspector
// does not read all words of a large hole.
func (c *core) chunkFrom(i uint64) uint64 {
	if c.data == nil {
		return i
	}
	return c.chunkAfterHole(i)
}

func (c *core) chunkAfterHole(i uint64) uint64 {
	return c.afterHole(c.geo.chunksOff, i, c.geo.chunkCount)
}

// afterHole returns the index of the first word from word i on that is not in a hole of the file. The words are the
// count words of 8 bytes at base. An Image copies the file in pieces of chunkSize bytes. So afterHole looks for a
// hole only at the beginning of a piece, and for i = 0. Elsewhere it returns i.
func (c *core) afterHole(base, i, count uint64) uint64 {
	at := base + i*8
	if i >= count || i > 0 && at%chunkSize != 0 {
		return i
	}
	return min(count, max(i, (max(c.data(at), at)-base)/8))
}

func (c *core) swapChunk(i uint64, old, to chunkWord) bool {
	return c.chunk(i).CompareAndSwap(uint64(old), uint64(to))
}

func (c *core) chunkOff(i uint64) Offset { return Offset(c.geo.heapOff + i*chunkSize) }

// blockWordOf returns the word that says what a block is used for. The chunk must be reserved, that
// is, have memory.
func (c *core) blockWordOf(chunk, index uint64) *atomic.Uint32 {
	return c.u32(c.placeOfBlockWord(chunk, index))
}

// placeOfBlockWord returns the offset of the word that says what a block is used for.
func (c *core) placeOfBlockWord(chunk, index uint64) Offset {
	return Offset(c.geo.blocksOff + (chunk*blockWords+index)*blockWordSize)
}

// claim finds a block of at least size bytes with the given alignment, claims it for this
// participant, and zeroes it. No other process knows of the block until a call of publish. If this
// process dies before that, the block is freed. The block does not lie in the headroom.
func (c *core) claim(size, align uint64) (Offset, error) {
	return c.claimOutside(size, align, roomOfAll)
}

// claimOutside does what claim does, in roomOfAll or roomOfLinked, that is, outside the headroom.
func (c *core) claimOutside(size, align uint64, in room) (Offset, error) {
	class, ok := classFor(size, align)
	if !ok {
		return c.claimSpan(size, in)
	}
	return c.claimZeroed(class, in)
}

// claimZeroed claims a block of the given size class in the given room of the heap, and zeroes the
// block.
func (c *core) claimZeroed(class int, in room) (Offset, error) {
	off, err := c.claimBlock(class, in)
	if err != nil {
		return 0, err
	}
	crashpoint.Hit("arena.alloc.claimed")
	clear(c.slice(off, uint64(classSizes[class])))
	return off, nil
}

// claimBlock claims a block of the given size class in the given room of the heap. It does not zero
// the block.
func (c *core) claimBlock(class int, in room) (Offset, error) {
	if off, ok := c.claimNext(class, in); ok {
		return off, nil
	}
	off, err := c.claimSearching(class, in)
	if err != nil && isNoSpace(err) && c.flushDeferred() { // frees deleted blocks that a peer has guarded until now
		off, err = c.claimSearching(class, in)
	}
	return off, err
}

// claimNext claims a block in the chunk from which the last block of the class came.
func (c *core) claimNext(class int, in room) (Offset, bool) {
	next := c.heap.next[class].Load()
	chunk := next / blockWords
	if chunk >= c.geo.chunkCount || !c.geo.serves(in, chunk) {
		return 0, false
	}
	return c.claimIn(chunk, class, next%blockWords)
}

// claimSearching claims a block of the class in another slab or in a fresh chunk. The goroutines of
// this process take turns. So if many goroutines need a block at the same time and no slab has one,
// they share one fresh chunk.
func (c *core) claimSearching(class int, in room) (Offset, error) {
	c.heap.search[class].turn.Lock()
	defer c.heap.search[class].turn.Unlock()
	var failed error
	for try := range claimTries {
		if off, ok := c.claimNext(class, in); ok {
			return off, nil
		}
		if off, ok := c.claimKnown(class, in); ok {
			return off, nil
		}
		off, busy, err := c.claimFresh(class, in)
		if off != 0 {
			return off, nil
		}
		failed = err
		for i := range c.geo.chunkCount {
			if !c.geo.serves(in, i) {
				continue
			}
			if off, ok := c.claimIn(i, class, 0); ok {
				return off, nil
			}
		}
		if c.sweep(1, in) > 0 { // a swept chunk keeps its memory, so it helps even if memory is full
			continue
		}
		if !busy {
			break
		}
		if in.inHeadroom() && try >= claimTries/2 {
			time.Sleep(headroomPause)
			continue
		}
		runtime.Gosched()
	}
	if failed != nil {
		return 0, failed
	}
	return 0, c.noSpace(uint64(classSizes[class]), in)
}

// claimIn claims a free block of a chunk, if the chunk is a slab of the class. The search begins at
// block number start.
func (c *core) claimIn(chunk uint64, class int, start uint64) (Offset, bool) {
	if !c.loadChunk(chunk).slabOf(class) {
		return 0, false
	}
	n := blocksOf(class)
	words := c.words(c.placeOfBlockWord(chunk, 0), n)
	for k := range n {
		index := start + k
		if index >= n {
			index %= n
		}
		word := &words[index]
		if word.Load() != blockFree {
			continue
		}
		// lin: from here on, this participant has the block, unless the check of the chunk below
		// fails.
		// sync(arena.block): acquire
		claimed := uint32(makeBlock(blockClaimed, c.self))
		c.touch(chunk)
		crashpoint.Hit("arena.block.before_claim")
		if !word.CompareAndSwap(blockFree, claimed) {
			continue
		}
		crashpoint.Hit("arena.block.claimed")
		// A sweeper may have taken the slab back before the claim. Then the chunk may have any use by now. But
		// if the chunk is a slab of the class now, it stays a slab of the class: no sweeper can take back a
		// slab with a claimed block.
		if !c.loadChunk(chunk).slabOf(class) {
			word.CompareAndSwap(claimed, blockFree)
			return 0, false
		}
		c.heap.next[class].Store(chunk*blockWords + (index+1)%n)
		return c.chunkOff(chunk) + Offset(index*uint64(classSizes[class])), true
	}
	return 0, false
}

// claimFresh makes a slab of a free chunk, and claims a block of the slab before any other
// participant can. If no chunk is free, off is 0, and busy reports whether other participants are
// changing chunks at the same time. If there is no more memory, claimFresh takes a chunk that
// already has memory.
func (c *core) claimFresh(class int, in room) (off Offset, busy bool, err error) {
	chunk, ok, busy := c.claimChunk(0, in)
	if !ok {
		return 0, busy, nil
	}
	crashpoint.Hit("arena.chunk.claimed")
	if err := c.back(chunk, 1); err != nil {
		c.freeRun(chunk, 1)
		if chunk, ok, busy = c.claimChunk(chunkReserved, in); !ok {
			return 0, busy, err
		}
	}
	if class == classNode {
		clear(c.slice(c.chunkOff(chunk), chunkSize))
	}
	for index := range blocksOf(class) {
		if c.blockWordOf(chunk, index).CompareAndSwap(blockFree, uint32(makeBlock(blockClaimed, c.self))) {
			off = c.chunkOff(chunk) + Offset(index*uint64(classSizes[class]))
			c.heap.next[class].Store(chunk*blockWords + (index+1)%blocksOf(class))
			break
		}
	}
	crashpoint.Hit("arena.chunk.before_slab")
	if !c.swapChunk(chunk, chunkReserved.claimedBy(c.self), makeChunk(chunkSlab, uint64(class), 0)) {
		return 0, busy, c.meddled(c.chunkOff(chunk))
	}
	return off, true, nil
}

// claimChunk claims a free chunk of the given room whose chunk word has all the given bits. The search begins at the
// hint in the header.
func (c *core) claimChunk(bits chunkWord, in room) (chunk uint64, ok, busy bool) {
	count := c.geo.chunkCount
	if count == 0 {
		return 0, false, false
	}
	hint := c.u64(hdrChunkHint) // the search is correct with any value
	start := hint.Load() % count
	for k := range count {
		i := (start + k) % count
		if !c.geo.serves(in, i) {
			continue
		}
		w := c.loadChunk(i)
		switch w.kind() {
		case chunkFree:
			if w&bits != bits {
				continue
			}
			c.touch(i)
			if c.swapChunk(i, w, w.claimedBy(c.self)) {
				hint.Store(i + 1)
				return i, true, busy
			}
			busy = true
		case chunkClaimed, chunkSweeping:
			busy = true
		}
	}
	return 0, false, busy
}

// back makes sure that the n chunks from the given one on, and their block words, have memory. This participant
// has claimed the chunks. back then marks the chunks as reserved. If there is too little memory for all of them,
// back gives back what it has allocated. The block words come first, because they need less memory.
//
// If this participant dies before it has marked the chunks, no word shows that they have memory. The next allocation
// that claims the chunks gets this memory.
func (c *core) back(chunk, n uint64) error {
	if c.reservedIn(chunk, n) < n {
		err := c.reserve(uint64(c.placeOfBlockWord(chunk, 0)), n*chunkWordsSize)
		if err == nil {
			err = c.reserve(uint64(c.chunkOff(chunk)), n*chunkSize)
		}
		if err != nil {
			c.giveBack(chunk, n)
			return err
		}
	}
	for i := chunk; i < chunk+n; i++ {
		if w := c.loadChunk(i); !w.reserved() {
			c.swapChunk(i, w, w|chunkReserved)
		}
		crashpoint.Hit("arena.chunk.backed")
	}
	return nil
}

// giveBack examines n chunks, which this participant has claimed. If a chunk is not marked as reserved, giveBack
// frees the memory of the chunk and of its block words. Such a chunk has never been used, so all of these bytes are
// 0, and stay 0.
func (c *core) giveBack(chunk, n uint64) {
	for i, end := chunk, chunk+n; i < end; i++ {
		first := i
		for i < end && c.loadChunk(i) == chunkWord(0).claimedBy(c.self) {
			i++
		}
		if run := i - first; run > 0 {
			c.discard(uint64(c.chunkOff(first)), run*chunkSize)
			c.discard(uint64(c.placeOfBlockWord(first, 0)), run*chunkWordsSize)
		}
	}
}

// reservedIn returns how many of the n chunks are reserved, which means that they have memory.
func (c *core) reservedIn(chunk, n uint64) (count uint64) {
	for i := chunk; i < chunk+n; i++ {
		if c.loadChunk(i).reserved() {
			count++
		}
	}
	return count
}

// noSpace returns the error for a heap that has no room for size bytes. The caller has searched the given room
// last.
func (c *core) noSpace(size uint64, in room) error {
	free, kept := uint64(0), uint64(0)
	for i := range c.geo.chunkCount {
		switch {
		case c.loadChunk(i).kind() != chunkFree:
		case c.geo.roomOf(i) == roomOfAll:
			free += chunkSize
		default:
			kept += chunkSize
		}
	}
	detail := "asked for " + strconv.FormatUint(size, 10) +
		" bytes; free in chunks of 64 KiB: " + strconv.FormatUint(free, 10) +
		" of " + strconv.FormatUint(c.geo.chunkCount*chunkSize, 10) + " bytes"
	switch {
	case in == roomOfLarge && size > uint64(classSizes[classHeadroom]):
		detail += "; the headroom has no room for so large a slot record"
	case in.inHeadroom():
		detail += "; the headroom is full, too"
	case kept > 0:
		detail += ", and " + strconv.FormatUint(kept, 10) + " bytes of headroom for users of objects that exist"
	}
	if in != roomOfAll && c.geo.linked < c.geo.chunkCount {
		detail += "; the block must lie in the first 256 GiB"
	}
	return c.fail("arena.alloc", shmsync.ErrNoSpace, detail)
}

package arenakernel

import "sync"

const (
	// nearSlabs is how many slabs of its class an allocation searches for a free block before it
	// takes a fresh chunk. It is large enough to find blocks that other participants have freed, and
	// small enough to keep the search cheap.
	nearSlabs = 16

	// nearWords is how many chunk words such a search reads at most.
	nearWords = 4096

	// firstSlabs and firstWords replace nearSlabs and nearWords during the first pass of a process over all
	// chunks. So during this pass, each search before a fresh chunk costs the process more.
	firstSlabs = 256
	firstWords = 1 << 16
)

// A slabSearch is a search of this process for free blocks of one class, in slabs other than the one
// from which the last block came. It goes downwards, and continues where the last search found a
// block. So if few blocks are free, each search finds the next of them.
//
// The search begins with one pass over all chunks of the arena, because most slabs were made by other
// processes. Without this pass, each short-lived process would take a fresh chunk. The pass begins at the chunk
// that was claimed last: probably an earlier process has made a slab of this chunk, and the slab still has free
// blocks. After the pass, the search covers only the chunks in which this process has seen slabs of the class.
type slabSearch struct {
	turn   sync.Mutex // held by the goroutine that searches or takes a fresh chunk
	begun  bool       // guarded by: turn
	passed uint64     // guarded by: turn; chunks that the first pass has searched
	at     uint64     // guarded by: turn; the search continues below this chunk

	// The slabs of the class that this process knows are in the chunks from first to end-1.
	first, end uint64 // guarded by: turn
}

// know adds a slab to the chunks of the search.
func (s *slabSearch) know(chunk uint64) {
	if s.first == s.end {
		s.first, s.end = chunk, chunk+1
	}
	s.first, s.end = min(s.first, chunk), max(s.end, chunk+1)
}

// claimKnown claims a block in a slab that is not full, if a search finds one. The caller holds the mutex turn
// of the search.
//
// In the headroom, which is small, claimKnown searches all chunks. So the headroom gives no fresh chunk to a class
// while a slab of this class has a free block. For a wait node, claimKnown also searches all chunks, because a chunk
// of wait nodes is never used for anything else.
func (c *core) claimKnown(class int, in room) (Offset, bool) {
	s, count := &c.heap.search[class], c.geo.chunkCount
	if count == 0 {
		return 0, false
	}
	if !s.begun {
		s.begun, s.at = true, c.u64(hdrChunkHint).Load()
	}
	if chunk := c.heap.next[class].Load() / blockWords; chunk < count && c.geo.serves(roomOfAll, chunk) && c.loadChunk(chunk).slabOf(class) {
		s.know(chunk)
	}
	switch h := &c.geo.headroom; {
	case in.inHeadroom():
		at := h.first + h.chunks()
		off, _, ok := c.claimBelow(class, in, &at, h.first, at, h.chunks(), h.chunks())
		return off, ok
	case class == classNode:
		end := min(count, c.geo.linked)
		off, _, ok := c.claimBelow(class, in, &s.at, 0, end, end, end)
		return off, ok
	case s.passed < count:
		off, passed, ok := c.claimBelow(class, in, &s.at, 0, count, min(firstWords, count-s.passed), firstSlabs)
		s.passed += passed
		return off, ok
	}
	off, _, ok := c.claimBelow(class, in, &s.at, s.first, s.end, min(nearWords, s.end-s.first), nearSlabs)
	return off, ok
}

// claimBelow claims a block of the class in one of the chunks from first to end-1. The search goes downwards
// from *at. After chunk first, it goes on with chunk end-1. It reads at most the given number of chunk words,
// and searches at most the given number of slabs. claimBelow returns how many chunk words it has read, and
// stores in *at the last chunk whose word it has read.
func (c *core) claimBelow(class int, in room, at *uint64, first, end, words, slabs uint64) (off Offset, read uint64, ok bool) {
	i := *at
	for read < words && slabs > 0 && !ok {
		if i <= first || i > end {
			i = end
		}
		i--
		read++
		if !c.geo.serves(in, i) || !c.loadChunk(i).slabOf(class) {
			continue
		}
		slabs--
		if !in.inHeadroom() {
			c.heap.search[class].know(i)
		}
		off, ok = c.claimIn(i, class, 0)
	}
	*at = i
	return off, read, ok
}

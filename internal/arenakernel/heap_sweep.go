package arenakernel

import "github.com/shmsync/shmsync/internal/crashpoint"

var (
	_ = crashpoint.Register("arena.sweep.begun")
	_ = crashpoint.Register("arena.sweep.blocked")
	_ = crashpoint.Register("arena.sweep.before_free")
)

// sweep frees slabs in which no block is in use. It frees at most want slabs of the given room, and returns their
// number.
func (c *core) sweep(want uint64, in room) (swept uint64) {
	for i := range c.geo.chunkCount {
		if swept == want {
			break
		}
		if c.geo.serves(in, i) && c.sweepChunk(i) {
			swept++
		}
	}
	return swept
}

// sweepChunk frees chunk i if the chunk is a slab with no block in use.
//
// An allocator that read the chunk word earlier may claim a block at any time. So the sweeper first changes
// each block word from free to blocked. The CAS of this change fails if an allocator has claimed the block. In
// addition, the allocator reads the chunk word again after its claim:
//
//	allocator                         sweeper
//	chunk is a slab
//	                                  chunk: slab -> sweeping
//	                                  each block: free -> blocked
//	                                  each block: blocked -> free
//	block: free -> claimed
//	                                  chunk: sweeping -> free
//	chunk is not a slab of the class: give up
func (c *core) sweepChunk(i uint64) bool {
	w := c.loadChunk(i)
	class := int(w.number())
	if w.kind() != chunkSlab || !w.legal(i, c.geo.chunkCount) || class == classNode {
		return false
	}
	n := blocksOf(class)
	for k := range n {
		if c.blockWordOf(i, k).Load() != blockFree {
			return false
		}
	}
	sweeping := makeChunk(chunkSweeping, uint64(class), c.self)
	c.touch(i)
	if !c.swapChunk(i, w, sweeping) {
		return false
	}
	crashpoint.Hit("arena.sweep.begun")
	blocked := uint32(makeBlock(blockBlocked, c.self))
	for k := range n {
		if !c.blockWordOf(i, k).CompareAndSwap(blockFree, blocked) {
			c.unblock(i, c.self)
			c.swapChunk(i, sweeping, w)
			return false
		}
	}
	crashpoint.Hit("arena.sweep.blocked")
	c.unblock(i, c.self)
	crashpoint.Hit("arena.sweep.before_free")
	if !c.swapChunk(i, sweeping, w.freed()) {
		return false
	}
	c.u64(hdrChunkHint).Store(i)
	return true
}

// unblock marks the blocks of chunk i that the participant n has blocked as free again.
func (c *core) unblock(i uint64, n ParticipantID) {
	blocked := uint32(makeBlock(blockBlocked, n))
	for k := range uint64(blockWords) {
		if word := c.blockWordOf(i, k); word.Load() == blocked {
			word.CompareAndSwap(blocked, blockFree)
		}
	}
}

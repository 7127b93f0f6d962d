package arenakernel

import (
	"errors"
	"runtime"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.span.claiming")
	_ = crashpoint.Register("arena.span.claimed")
	_ = crashpoint.Register("arena.span.headed")
	_ = crashpoint.Register("arena.span.dismantling")
)

// claimSpan claims as many whole chunks as size bytes need, zeroed. It searches from the top of
// the heap downwards, where slabs are made last.
func (c *core) claimSpan(size uint64) (Offset, error) {
	n := size/chunkSize + min(size%chunkSize, 1)
	if n > c.geo.chunkCount {
		return 0, c.noSpace(size)
	}
	var failed error
	for range claimTries {
		top := min(c.heap.top.Load(), c.geo.chunkCount)
		off, busy, err := c.spanBelow(top, n, 0)
		if off == 0 && err == nil {
			off, busy, err = c.spanBelow(c.geo.chunkCount, n, 0)
		}
		// If there is no memory for this row of chunks, another row in which more chunks have
		// memory may do.
		for least := uint64(1); err != nil && isNoSpace(err) && least <= n; least++ {
			failed = err
			off, busy, err = c.spanBelow(c.geo.chunkCount, n, least)
		}
		if off != 0 || err != nil && !isNoSpace(err) {
			return off, err
		}
		if c.sweep(c.geo.chunkCount) > 0 {
			continue
		}
		if !busy {
			break
		}
		runtime.Gosched()
	}
	if failed != nil {
		return 0, failed
	}
	return 0, c.noSpace(size)
}

func isNoSpace(err error) bool { return errors.Is(err, shmsync.ErrNoSpace) }

// spanBelow claims the first n free chunks in a row, downwards from top, of which at least least
// chunks have memory. If there is no such row, the offset is 0, and busy says whether other
// participants are working on some chunks.
func (c *core) spanBelow(top, n, least uint64) (off Offset, busy bool, err error) {
	run := uint64(0)
	for i := top; i > 0; i-- {
		w := c.loadChunk(i - 1)
		if w.kind() != chunkFree {
			busy = busy || w.kind() == chunkClaimed || w.kind() == chunkSweeping
			run = 0
			continue
		}
		if run++; run < n || least > 0 && c.reservedIn(i-1, n) < least {
			continue
		}
		head := i - 1
		if !c.claimRun(head, n) {
			busy, run = true, 0
			continue
		}
		ok, err := c.makeSpan(head, n)
		if ok {
			c.heap.top.Store(head)
			return c.chunkOff(head), busy, nil
		}
		if err != nil {
			return 0, busy, err
		}
		busy, run = true, 0
	}
	return 0, busy, nil
}

// claimRun claims n chunks, or none.
func (c *core) claimRun(head, n uint64) bool {
	for k := range n {
		w := c.loadChunk(head + k)
		c.touch(head + k)
		if w.kind() != chunkFree || !c.swapChunk(head+k, w, w.claimedBy(c.self)) {
			c.freeRun(head, k)
			return false
		}
		crashpoint.Hit("arena.span.claiming")
	}
	return true
}

// freeRun makes n chunks free that we have claimed.
func (c *core) freeRun(head, n uint64) {
	for k := range n {
		if w := c.loadChunk(head + k); w.kind() == chunkClaimed && w.participant() == c.self {
			c.swapChunk(head+k, w, w.freed())
		}
	}
}

// makeSpan makes a span of n claimed chunks and claims its block word. If that word is not free,
// it makes the chunks free again and reports false: an allocator that tried to claim from a slab
// in this chunk may not have noticed yet that the slab is gone.
//
// The block word is claimed before the head is written, so that a span always has an owner. The
// tails are written last: whatever the owner's death leaves is found from the head.
func (c *core) makeSpan(head, n uint64) (bool, error) {
	used := make([]bool, n) // the memory of a chunk that was never reserved is zero
	for i := range used {
		used[i] = c.loadChunk(head + uint64(i)).reserved()
	}
	if err := c.back(head, n); err != nil {
		c.freeRun(head, n)
		return false, err
	}
	word := c.blockWordOf(head, 0)
	if !word.CompareAndSwap(blockFree, uint32(makeBlock(blockClaimed, c.self))) {
		c.freeRun(head, n)
		return false, nil
	}
	crashpoint.Hit("arena.span.claimed")
	for i, used := range used {
		if used {
			clear(c.slice(c.chunkOff(head+uint64(i)), chunkSize))
		}
	}
	to := makeChunk(chunkHead, n, 0)
	for i := head; i < head+n; i++ {
		if !c.swapChunk(i, chunkReserved.claimedBy(c.self), to) {
			return false, c.meddled(c.chunkOff(head))
		}
		to = makeChunk(chunkTail, head, 0)
		crashpoint.Hit("arena.span.headed")
	}
	return true, nil
}

// dismantle makes the chunks of a span free, the head last. Until then the block word of the
// span, claimed or freeing, keeps it ours. dismantle may continue an earlier try: it leaves the
// chunks alone that are free already. A chunk that had not become a tail yet is still a claimed
// chunk, and dismantle frees it as such.
func (c *core) dismantle(head uint64) {
	w := c.loadChunk(head)
	if w.kind() != chunkHead || !w.legal(head, c.geo.chunkCount) {
		return
	}
	tail := makeChunk(chunkTail, head, 0)
	for i := head + 1; i < head+w.number(); i++ {
		t := c.loadChunk(i)
		if t == tail {
			c.swapChunk(i, t, t.freed())
		}
		crashpoint.Hit("arena.span.dismantling")
	}
	c.swapChunk(head, w, w.freed())
	c.heap.top.Store(max(c.heap.top.Load(), head+w.number()))
	c.u64(hdrChunkHint).Store(head)
}

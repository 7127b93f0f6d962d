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

// claimSpan claims as many whole chunks as size bytes need, and zeroes them. It searches from the
// top of the heap downwards, because slabs, which are chunks for small blocks, are made from the
// bottom. The span lies in the given room, which is roomOfAll or roomOfLinked.
func (c *core) claimSpan(size uint64, in room) (Offset, error) {
	off, err := c.tryClaimSpan(size, in)
	if err != nil && isNoSpace(err) && c.flushDeferred() {
		off, err = c.tryClaimSpan(size, in)
	}
	return off, err
}

func (c *core) tryClaimSpan(size uint64, in room) (Offset, error) {
	n := size/chunkSize + min(size%chunkSize, 1)
	if n > c.geo.common() {
		return 0, c.noSpace(size, in)
	}
	var failed error
	for range claimTries {
		top := min(c.heap.top.Load(), c.geo.chunkCount)
		off, busy, err := c.spanBelow(top, n, in)
		if off == 0 && err == nil {
			off, busy, err = c.spanBelow(c.geo.chunkCount, n, in)
		}
		// If there was no memory for a row of chunks, try the row that needs the least memory. If
		// there is no memory for that row either, there is none for any other row.
		if err != nil && isNoSpace(err) {
			failed = err
			if head, ok := c.fullestRow(n, in); ok {
				off, err = c.spanAt(head, n)
				busy = busy || off == 0 && err == nil
			}
		}
		if off != 0 || err != nil && !isNoSpace(err) {
			return off, err
		}
		if c.sweep(c.geo.chunkCount, in) > 0 {
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
	return 0, c.noSpace(size, in)
}

func isNoSpace(err error) bool { return errors.Is(err, shmsync.ErrNoSpace) }

// spanBelow makes a span of n free chunks in a row, in the given room. It searches downwards from top. If there
// is no such row, the offset is 0, and the second result says whether other participants are changing chunks
// meanwhile.
func (c *core) spanBelow(top, n uint64, in room) (off Offset, busy bool, err error) {
	run := uint64(0)
	for i := top; i > 0; i-- {
		if !c.geo.serves(in, i-1) {
			run = 0
			continue
		}
		w := c.loadChunk(i - 1)
		if w.kind() != chunkFree {
			busy = busy || w.kind() == chunkClaimed || w.kind() == chunkSweeping
			run = 0
			continue
		}
		if run++; run < n {
			continue
		}
		if off, err := c.spanAt(i-1, n); off != 0 || err != nil {
			return off, busy, err
		}
		busy, run = true, 0
	}
	return 0, busy, nil
}

// spanAt makes a span of n chunks, of which the parameter head is the first. If these chunks are not
// free any more, the offset is 0.
func (c *core) spanAt(head, n uint64) (Offset, error) {
	if !c.claimRun(head, n) {
		return 0, nil
	}
	ok, err := c.makeSpan(head, n)
	if !ok {
		return 0, err
	}
	c.heap.top.Store(head)
	return c.chunkOff(head), nil
}

// fullestRow returns the first chunk of a row of n free chunks of the room. Of all such rows, this row has the
// most chunks that are backed by memory. fullestRow returns false if no row has a chunk that is backed by
// memory. It reads each chunk word at most twice. Other participants may change chunks meanwhile, so the result
// may be wrong.
func (c *core) fullestRow(n uint64, in room) (head uint64, found bool) {
	run, backed, most := uint64(0), 0, 0
	for i := c.geo.chunkCount; i > 0; i-- {
		w := c.loadChunk(i - 1)
		if w.kind() != chunkFree || !c.geo.serves(in, i-1) {
			run, backed = 0, 0
			continue
		}
		if w.reserved() {
			backed++
		}
		if run++; run > n && c.loadChunk(i-1+n).reserved() {
			backed--
		}
		if run >= n && backed > most {
			head, most = i-1, backed
		}
	}
	return head, most > 0
}

// claimRun claims n chunks, of which the parameter head is the first. If it cannot claim all of
// them, it claims none and returns false.
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

// freeRun frees n chunks, of which the parameter head is the first, if this participant has claimed
// them.
func (c *core) freeRun(head, n uint64) {
	for k := range n {
		if w := c.loadChunk(head + k); w.kind() == chunkClaimed && w.participant() == c.self {
			c.swapChunk(head+k, w, w.freed())
		}
	}
}

// makeSpan makes a span, which is one large block, of n claimed chunks, and claims its block word.
// If that word is not free, makeSpan frees the chunks again and returns false. The word can still
// be in use for a moment. This happens if an allocator has claimed a block of a former slab in this
// chunk, and has not noticed yet that the slab no longer exists.
//
// The block word is claimed before the head is written, so that a span always has an owner. The head is
// written before the tails, because a reaper starts from the head to find everything that a dead owner
// has left.
func (c *core) makeSpan(head, n uint64) (bool, error) {
	used := make([]bool, n) // the chunks to clear; the memory of a chunk that was never reserved is zero
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

// dismantle frees the chunks of a span, the first chunk last. Until the first chunk is free, the block
// word, in the state claimed or freeing, keeps the span for this participant. dismantle skips chunks that
// an interrupted call has freed already. It also skips chunks that are still claimed because their maker
// died before the span was complete; reclaimBlocks frees these chunks.
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

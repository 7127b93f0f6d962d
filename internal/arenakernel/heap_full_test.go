//go:build linux

package arenakernel

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

const chunkCost = chunkSize + blockWords*blockWordSize

// fullHeap returns a heap on a file system that has room for the given number of chunks. All these
// chunks have been used and are free again. They are at the beginning of the heap.
func fullHeap(t *testing.T, chunks int) (*neighbours, *Arena) {
	p := newNeighbours(4<<20, 4)
	p.limit = uint64(chunks) * chunkCost
	a := p.join(1)
	var used []Offset
	for range chunks {
		used = append(used, mustAlloc(t, a, 32768, 0), mustAlloc(t, a, 32768, 0))
	}
	for _, off := range used {
		a.Free(off)
	}
	_, err := a.Alloc(uint64(chunks+1)*chunkSize, 0) // the failed allocation frees the slabs
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.EqualValues(t, a.Stats().Chunks, a.Stats().FreeChunks)
	require.EqualValues(t, chunks, a.Stats().Reserved)
	a.u64(hdrChunkHint).Store(uint64(chunks) + 3) // the hint points to a chunk without memory
	return p, a
}

// TestUseWhatHasMemory: when there is no more memory, an allocation uses free blocks that already
// have memory.
func TestUseWhatHasMemory(t *testing.T) {
	t.Run("block", func(t *testing.T) {
		_, a := fullHeap(t, 2)
		for range 2 * 2 {
			mustAlloc(t, a, 32768, 0)
		}
		_, err := a.Alloc(32768, 0)
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
		requireSound(t, a)
	})
	t.Run("node", func(t *testing.T) {
		_, a := fullHeap(t, 1)
		copy(a.slice(a.chunkOff(0), chunkSize), bytes.Repeat([]byte{0xff}, chunkSize))
		off, err := a.ClaimNode()
		require.NoError(t, err)
		require.Equal(t, NodeIdle, a.node(off).State())
		require.Equal(t, a.chunkOff(0), off)
		require.Equal(t, make([]byte, chunkSize-nodeSize), a.slice(off+nodeSize, chunkSize-nodeSize))
		requireSound(t, a)
	})
	t.Run("slab of another class", func(t *testing.T) {
		_, a := fullHeap(t, 1)
		a.Free(mustAlloc(t, a, 32768, 0)) // a slab, and empty
		a.u64(hdrChunkHint).Store(5)
		mustAlloc(t, a, 64, 0)
	})
	t.Run("span", func(t *testing.T) {
		_, a := fullHeap(t, 3)
		off := mustAlloc(t, a, 2*chunkSize, 0)
		require.Equal(t, make([]byte, 2*chunkSize), a.slice(off, 2*chunkSize))
		mustAlloc(t, a, chunkSize, 0)
		_, err := a.Alloc(chunkSize, 0)
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
		requireSound(t, a)
	})
	t.Run("span, partly", func(t *testing.T) {
		_, a := fullHeap(t, 3)
		low := mustAlloc(t, a, chunkSize, 0)
		require.Equal(t, a.chunkOff(2), low)
		a.reserve = func(off, n uint64) error { // room for one more chunk
			end := off + n
			if end > uint64(a.chunkOff(4)) || end > a.geo.blocksOff+4*blockWords*blockWordSize && off < a.geo.heapOff {
				return shmsync.ErrNoSpace
			}
			return nil
		}
		a.Free(low)
		a.heap.top.Store(a.geo.chunkCount)
		require.Equal(t, a.chunkOff(0), mustAlloc(t, a, 4*chunkSize, 0))
		_, err := a.Alloc(chunkSize, 0)
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
	})
}

// TestFailedReservationGivesMemoryBack checks that an allocation gives back exactly the memory that it has got if the
// file system has not enough memory for the whole allocation. Chunks that had memory before keep it, and so do their
// block words.
func TestFailedReservationGivesMemoryBack(t *testing.T) {
	const row, kept = 40, 20
	for _, room := range []uint64{0, 10 * chunkWordsSize, row * chunkWordsSize, row*chunkWordsSize + 5*chunkSize} {
		p := newNeighbours(4<<20, 4)
		a := p.join(1)
		a.heap.top.Store(kept + 1)
		low := mustAlloc(t, a, chunkSize, 0)
		require.Equal(t, a.chunkOff(kept), low)
		a.Free(low)
		p.bytes[low] = 'x'
		a.heap.top.Store(row)
		backed, left := map[uint64]bool{}, room // by page
		a.reserve = func(off, n uint64) error {
			require.Equal(t, a.self, a.loadChunk(kept).participant(), "while the chunks are claimed")
			for at := off; at < off+n; at += 4096 {
				if left == 0 {
					return shmsync.ErrNoSpace
				}
				backed[at] = true
				left -= 4096
			}
			return nil
		}
		a.discard = func(off, n uint64) {
			require.Equal(t, a.self, a.loadChunk(kept).participant(), "while the chunks are claimed")
			clear(p.bytes[off : off+n])
			for at := off; at < off+n; at += 4096 {
				if backed[at] {
					left += 4096
				}
				delete(backed, at)
			}
		}
		_, err := a.Alloc(row*chunkSize, 0)
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
		delete(backed, uint64(a.placeOfBlockWord(kept, 0)))
		for at := range uint64(chunkSize) {
			delete(backed, uint64(low)+at)
		}
		require.Empty(t, backed)
		require.EqualValues(t, 'x', p.bytes[low])
		require.EqualValues(t, 1, a.reservedIn(0, a.geo.chunkCount))
		requireSound(t, a)
	}
}

// TestSpanWithoutMemoryTriesTwoRows: there is no memory for a span, although some chunks of the heap have
// memory. The allocation asks for memory for the first row of chunks, and for the row that needs the least.
// It tries no other row: each try claims all chunks of the row, so other participants find the heap busy.
func TestSpanWithoutMemoryTriesTwoRows(t *testing.T) {
	_, a := fullHeap(t, 12)
	a.heap.top.Store(a.geo.chunkCount)
	var rows []Offset
	a.reserve = func(off, n uint64) error {
		rows = append(rows, Offset(off))
		return shmsync.ErrNoSpace
	}
	_, err := a.Alloc(30*chunkSize, 0)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.Equal(t, []Offset{a.placeOfBlockWord(a.geo.common()-30, 0), a.placeOfBlockWord(0, 0)}, rows)
	requireSound(t, a)
}

// TestFullestRow checks that fullestRow finds the row of free chunks that needs the least memory.
func TestFullestRow(t *testing.T) {
	a := newNeighbours(4<<20, 4).join(1)
	set := func(words map[uint64]chunkWord) {
		for i := range a.geo.chunkCount {
			a.u64(Offset(a.geo.chunksOff + 8*i)).Store(uint64(words[i]))
		}
	}
	used := makeChunk(chunkHead, 1, 0)
	for _, c := range []struct {
		words map[uint64]chunkWord
		n     uint64
		head  uint64
		found bool
	}{
		{nil, 3, 0, false},
		{map[uint64]chunkWord{7: chunkReserved}, 3, 7, true},
		{map[uint64]chunkWord{7: chunkReserved, 9: chunkReserved, 20: chunkReserved}, 3, 7, true},
		{map[uint64]chunkWord{7: chunkReserved, 8: used, 9: chunkReserved}, 3, 9, true},
		{map[uint64]chunkWord{7: chunkReserved, 8: used, 9: chunkReserved, 11: used}, 3, 5, true},
		{map[uint64]chunkWord{0: chunkReserved, 1: chunkReserved, 2: chunkReserved, 3: used}, 3, 0, true},
		{map[uint64]chunkWord{0: chunkReserved, 1: chunkReserved, 2: used}, 3, 0, false},
		{map[uint64]chunkWord{0: chunkReserved, 4: chunkReserved}, a.geo.common(), 0, true},
		{map[uint64]chunkWord{0: chunkReserved, 4: chunkReserved}, a.geo.common() + 1, 0, false},
	} {
		set(c.words)
		head, found := a.fullestRow(c.n, roomOfAll)
		require.Equal(t, c.found, found, "%v", c)
		if found {
			require.Equal(t, c.head, head, "%v", c)
		}
	}
}

// TestSpanDoesNotTouchARunItCannotHave: an allocation of a span does not change a run of chunks in
// which a block word is not free.
func TestSpanDoesNotTouchARunItCannotHave(t *testing.T) {
	p := newNeighbours(4<<20, 4)
	a, v := p.join(1), p.join(2)
	a.Free(mustAlloc(t, a, 2*chunkSize, 0))
	top := a.geo.common() - 2
	junk := bytes.Repeat([]byte{7}, 2*chunkSize)
	copy(a.slice(a.chunkOff(top), 2*chunkSize), junk)
	// v has claimed a block in a slab that no longer exists, and is about to notice that.
	a.blockWordOf(top, 0).Store(uint32(makeBlock(blockClaimed, v.self)))
	off := mustAlloc(t, a, 2*chunkSize, 0)
	require.Less(t, off, a.chunkOff(top))
	require.Equal(t, junk, a.slice(a.chunkOff(top), 2*chunkSize))
	a.blockWordOf(top, 0).Store(blockFree)
	a.heap.top.Store(a.geo.chunkCount)
	off = mustAlloc(t, a, 2*chunkSize, 0)
	require.Equal(t, a.chunkOff(top), off)
	require.Equal(t, make([]byte, 2*chunkSize), a.slice(off, 2*chunkSize))
}

//go:build linux

package arenakernel

import (
	"bytes"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/stretchr/testify/require"
)

func TestAllocGivesDisjointZeroedAlignedBlocks(t *testing.T) {
	p := newNeighbours(4<<20, 4)
	a := p.join(1)
	type piece struct {
		off  Offset
		size uint64
	}
	var pieces []piece
	for round := range 2 {
		for i, size := range []uint64{0, 1, 64, 65, 100, 192, 193, 4096, 5000, 32768, 32769, 65536, 65537, 300000} {
			align := uint64(1) << (i % 13)
			off := mustAlloc(t, a, size, align)
			require.Zero(t, uint64(off)%max(align, 64), "size %d", size)
			b := a.slice(off, size)
			require.Equal(t, make([]byte, size), b, "size %d in round %d", size, round)
			for _, q := range pieces {
				require.True(t, uint64(q.off)+q.size <= uint64(off) || uint64(off)+size <= uint64(q.off))
			}
			copy(b, bytes.Repeat([]byte{0xa5}, len(b)))
			pieces = append(pieces, piece{off, size})
		}
		requireSound(t, a)
		for _, q := range pieces {
			a.Free(q.off)
		}
		pieces = nil
		requireSound(t, a)
		s := a.Stats()
		require.Zero(t, s.Raw+s.Claimed+s.BytesUsed)
	}
}

func TestAllocPanicsOnABadAlignment(t *testing.T) {
	a := newNeighbours(1<<20, 4).join(1)
	for _, align := range []uint64{3, 8192, 4097} {
		require.Panics(t, func() { a.Alloc(64, align) }, "align %d", align)
	}
}

func TestFreePanicsOnWhatIsNotAllocated(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	off := mustAlloc(t, a, 200, 0)
	span := mustAlloc(t, a, 3*chunkSize, 0)
	node, err := a.ClaimNode()
	require.NoError(t, err)
	o, _, err := a.OpenObject(ObjectSpec{Kind: KindBlock, Name: "o", Size: 64})
	require.NoError(t, err)
	for _, wild := range []Offset{0, 1, off + 1, off + 64, span + 64, span + chunkSize, node, o.Offset,
		Offset(a.size), Offset(a.geo.heapOff - 64), ^Offset(0), Offset(a.geo.blocksOff)} {
		requirePanicNaming(t, wild, func() { a.Free(wild) })
	}
	a.Free(off)
	requirePanicNaming(t, off, func() { a.Free(off) })
	a.Free(span)
	requirePanicNaming(t, span, func() { a.Free(span) })
	requireSound(t, a)
}

func TestFullArenaSaysHowFull(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a := p.join(1)
	var got []Offset
	for {
		off, err := a.Alloc(32768, 0)
		if err != nil {
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			require.ErrorContains(t, err, "asked for 32768 bytes")
			require.ErrorContains(t, err, " 0 of ")
			break
		}
		got = append(got, off)
	}
	require.Len(t, got, int(2*p.geo.common()))
	_, err := a.Alloc(64, 0)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	_, err = a.Alloc(1<<62, 0)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	_, err = a.Alloc(1<<64-1, 4096)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.ErrorContains(t, err, " 0 of ")
	require.ErrorContains(t, err, " bytes of headroom for users of objects that exist")
	for err = nil; err == nil; {
		_, err = a.ClaimNode()
	}
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.ErrorContains(t, err, "the headroom is full, too")
	a.Free(got[0])
	require.Equal(t, got[0], mustAlloc(t, a, 20000, 0))
}

func TestEmptySlabsServeOtherSizes(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	fill := func(a *Arena, size uint64) (got []Offset) {
		for {
			off, err := a.Alloc(size, 0)
			if err != nil {
				return got
			}
			got = append(got, off)
		}
	}
	small := fill(a, 64)
	require.Len(t, small, int(p.geo.common())*blockWords)
	for _, off := range small {
		b.Free(off)
	}
	whole := mustAlloc(t, b, p.geo.common()*chunkSize, 0)
	require.Equal(t, Offset(p.geo.heapOff), whole)
	a.Free(whole)
	require.Len(t, fill(a, 192), int(p.geo.common())*(chunkSize/192))
	requireSound(t, a)
}

func TestNodeChunksStayNodes(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a := p.join(1)
	var nodes []Offset
	for {
		off, err := a.ClaimNode()
		if err != nil {
			break
		}
		nodes = append(nodes, off)
	}
	require.Len(t, nodes, int(p.geo.common()+p.geo.headroom.nodes)*blockWords)
	for _, off := range nodes {
		require.NoError(t, a.freeNode(off))
	}
	_, err := a.Alloc(64, 0)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	_, err = a.ClaimNode()
	require.NoError(t, err)
}

func TestHeapIsReservedAsItFills(t *testing.T) {
	p := newNeighbours(4<<20, 4)
	p.limit = 3 * chunkCost
	a := p.join(1)
	first := mustAlloc(t, a, 64, 0)
	require.EqualValues(t, chunkCost, p.reserved)
	mustAlloc(t, a, 64, 0)
	require.EqualValues(t, chunkCost, p.reserved)
	span := mustAlloc(t, a, 2*chunkSize, 0)
	require.EqualValues(t, 3*chunkCost, p.reserved)
	_, err := a.Alloc(32768, 0)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	_, err = a.Alloc(chunkSize, 0)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	requireSound(t, a)
	require.EqualValues(t, 3, a.Stats().Reserved)
	a.Free(span)
	mustAlloc(t, a, 64, 0)
	a.Free(first)
	requireSound(t, a)
}

func TestOthersSeeWhatWasFreed(t *testing.T) {
	p := newNeighbours(1<<20, 4)
	a, b := p.join(1), p.join(2)
	seen := map[Offset]bool{}
	for range 10 * p.geo.chunkCount * 2 {
		off := mustAlloc(t, a, 32768, 0)
		seen[off] = true
		b.Free(off)
	}
	require.LessOrEqual(t, len(seen), 2*int(p.geo.chunkCount))
}

func TestUnclaimGivesBack(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a := p.join(1)
	a.Free(mustAlloc(t, a, 64, 0))
	before := a.Stats()
	for _, size := range []uint64{64, 3 * chunkSize} {
		off, err := a.claim(size, 1)
		require.NoError(t, err)
		w, _, ok := a.blockAt(off)
		require.True(t, ok)
		require.Equal(t, makeBlock(blockClaimed, a.self), w)
		require.Panics(t, func() { a.Free(off) })
		a.unclaim(off)
	}
	after := a.Stats()
	after.Reserved = before.Reserved
	require.Equal(t, before, after)
	requireSound(t, a)
}

func BenchmarkAllocFree(b *testing.B) {
	a := newNeighbours(64<<20, 128).join(1)
	for b.Loop() {
		off, _ := a.Alloc(64, 0)
		a.Free(off)
	}
}

func BenchmarkAllocFill(b *testing.B) {
	a := newNeighbours(64<<20, 128).join(1)
	var got []Offset
	for b.Loop() {
		off, err := a.Alloc(64, 0)
		if err != nil {
			for _, off := range got {
				a.Free(off)
			}
			got = got[:0]
			continue
		}
		got = append(got, off)
	}
}

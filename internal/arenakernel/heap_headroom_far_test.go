//go:build linux && (amd64 || arm64)

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

// newFar returns an arena of 320 GiB.
func newFar(t *testing.T) *neighbours {
	t.Helper()
	const size = 320 << 30
	bytes, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Skip("needs an address space of 320 GiB: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Munmap(bytes)) })
	p := newNeighbours(chunkSize, 4)
	p.bytes, p.geo = bytes, plan(size, 4)
	return p
}

// nearFar returns neighbours whose heap has 64 chunks within reach of a link of 32 bits, followed by 64 chunks out of
// reach. The directory is small, because a check reads all of it. The result beyond is the number of the first chunk
// out of reach. After a call of lookBeyond, the next search for a free chunk begins out of reach.
func nearFar(t *testing.T) (p *neighbours, beyond uint64, lookBeyond func(a *Arena)) {
	t.Helper()
	p = newFar(t)
	p.geo.dirCount = 64
	p.geo.heapOff, p.geo.chunkCount = linkUnit<<32-64*chunkSize, 128
	p.geo.linked, p.geo.headroom = linkedChunks(p.geo.heapOff, 128), planHeadroom(p.geo.heapOff, 128)
	return p, 64, func(a *Arena) { a.u64(hdrChunkHint).Store(64) }
}

// TestSlotRecordsLieWithinReach checks that slot records and the blocks of AddBlock lie within reach of the
// word objRecords, even if the next free block of an arena of more than 256 GiB is out of reach. Slot records
// use the headroom only if no other block within reach is free.
func TestSlotRecordsLieWithinReach(t *testing.T) {
	for _, size := range []uint64{256, 3000, chunkSize + 1} {
		p, beyond, lookBeyond := nearFar(t)
		a := p.join(1)
		o, _, err := a.OpenObject(spec("x"))
		require.NoError(t, err)
		roomOf := func(off Offset) room {
			require.Less(t, uint64(off), uint64(linkUnit<<32))
			return p.geo.roomOf(uint64(off-Offset(p.geo.heapOff)) / chunkSize)
		}
		lookBeyond(a)
		far, err := a.Alloc(size, 0)
		require.NoError(t, err)
		require.GreaterOrEqual(t, uint64(far), uint64(linkUnit<<32))
		lookBeyond(a)
		off, err := a.SlotRecord(o, size)
		require.NoError(t, err)
		require.Equal(t, roomOfAll, roomOf(off))
		lookBeyond(a)
		off, err = a.AddBlock(o, size, a.SlotRecords(o).Load(), func(Offset) {})
		require.NoError(t, err)
		require.Equal(t, roomOfAll, roomOf(off))
		requireSound(t, a)

		// Outside the headroom, every chunk within reach is in use. All free chunks are out of reach.
		b := p.join(2)
		for i := range p.geo.headroom.first {
			switch w := a.loadChunk(i); {
			case w.kind() == chunkFree:
				a.swapChunk(i, w, makeChunk(chunkHead, 1, 0))
			case w.kind() == chunkSlab:
				for k := range blocksOf(int(w.number())) {
					a.blockWordOf(i, k).CompareAndSwap(blockFree, uint32(makeBlock(blockObject, 0)))
				}
			}
		}
		require.Equal(t, chunkFree, a.loadChunk(beyond+32).kind())
		off, err = b.SlotRecord(o, size)
		switch {
		case size <= uint64(classSizes[classHeadroom]):
			require.NoError(t, err)
			require.Equal(t, roomOfRecords, roomOf(off))
		case size <= chunkSize/2:
			require.NoError(t, err)
			require.Equal(t, roomOfLarge, roomOf(off))
		default:
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
		}
		_, err = b.AddBlock(o, size, a.SlotRecords(o).Load(), func(Offset) {})
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
		require.ErrorContains(t, err, "must lie in the first 256 GiB")
	}
}

// TestWaitNodesLieWithinReach checks that wait nodes lie within reach of the 32-bit links of queues, even if
// the next free block of an arena of more than 256 GiB is out of reach. If no block within reach is free,
// ClaimNode fails.
func TestWaitNodesLieWithinReach(t *testing.T) {
	p, beyond, lookBeyond := nearFar(t)
	a := p.join(1)
	claim := func(in room) {
		t.Helper()
		for range blocksOf(classNode) {
			lookBeyond(a)
			off, err := a.ClaimNode()
			require.NoError(t, err)
			require.Less(t, uint64(off), uint64(linkUnit<<32))
			require.Equal(t, in, p.geo.roomOf(uint64(off-Offset(p.geo.heapOff))/chunkSize))
		}
	}
	claim(roomOfAll)

	// A participant of an older version has used a chunk out of reach for wait nodes, and one node of this chunk is
	// free.
	require.True(t, a.swapChunk(beyond, chunkFree, makeChunk(chunkSlab, classNode, 0)))
	a.heap.next[classNode].Store(beyond * blockWords)
	a.heap.search[classNode].begun, a.heap.search[classNode].at = true, beyond+1
	claim(roomOfAll)

	// The only free chunks are out of reach. A sweep could free another chunk, which is out of reach, too.
	for i := range p.geo.headroom.first {
		a.swapChunk(i, chunkFree, makeChunk(chunkHead, 1, 0))
	}
	empty := makeChunk(chunkSlab, 0, 0)
	require.True(t, a.swapChunk(beyond+1, chunkFree, empty))
	claim(roomOfNodes)
	_, err := a.ClaimNode()
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.ErrorContains(t, err, "must lie in the first 256 GiB")
	require.Equal(t, empty, a.loadChunk(beyond+1), "a sweep out of reach is of no use")
}

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

// TestHeadroomServesFarRecords: in an arena of more than 256 GiB, the next free block may be out of reach of the word
// objRecords. Then a slot record takes the headroom, which is within reach.
func TestHeadroomServesFarRecords(t *testing.T) {
	p := newFar(t)
	a, b := p.join(1), p.join(2)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	_, err = a.SlotRecord(o, 1000) // the slab of these blocks is of no use for the next record
	require.NoError(t, err)
	a.u64(hdrChunkHint).Store(p.geo.headroom.first + p.geo.headroom.chunks())
	far, err := b.Alloc(256, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, uint64(far), uint64(linkUnit<<32))
	off, err := b.SlotRecord(o, 256)
	require.NoError(t, err)
	require.Equal(t, roomOfRecords, p.geo.roomOf(uint64(off-Offset(p.geo.heapOff))/chunkSize))
	_, err = b.AddBlock(o, 256, a.SlotRecords(o).Load(), func(Offset) {})
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
}

// TestWaitNodesLieWithinReach: in an arena of more than 256 GiB, the next free block may be out of reach of the 32-bit
// links of queues. Then a wait node takes a block that is within reach, and after the last one there is no space.
func TestWaitNodesLieWithinReach(t *testing.T) {
	p := newFar(t)
	p.geo.heapOff, p.geo.chunkCount = linkUnit<<32-64*chunkSize, 128 // 64 chunks are within reach
	p.geo.linked, p.geo.headroom = linkedChunks(p.geo.heapOff, 128), planHeadroom(p.geo.heapOff, 128)
	a := p.join(1)
	const beyond = 64
	claim := func(in room) {
		t.Helper()
		for range blocksOf(classNode) {
			a.u64(hdrChunkHint).Store(beyond)
			off, err := a.ClaimNode()
			require.NoError(t, err)
			require.Less(t, uint64(off), uint64(linkUnit<<32))
			require.Equal(t, in, p.geo.roomOf(uint64(off-Offset(p.geo.heapOff))/chunkSize))
		}
	}
	claim(roomOfAll)

	// A participant of an older version has used a chunk out of reach for wait nodes, and one of them is free.
	require.True(t, a.swapChunk(beyond, chunkFree, makeChunk(chunkSlab, classNode, 0)))
	a.heap.next[classNode].Store(beyond * blockWords)
	a.heap.search[classNode].begun, a.heap.search[classNode].at = true, beyond+1
	claim(roomOfAll)

	// There are free chunks out of reach only, and one of them can be swept.
	for i := range p.geo.headroom.first {
		a.swapChunk(i, chunkFree, makeChunk(chunkHead, 1, 0))
	}
	empty := makeChunk(chunkSlab, 0, 0)
	require.True(t, a.swapChunk(beyond+1, chunkFree, empty))
	claim(roomOfNodes)
	_, err := a.ClaimNode()
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.ErrorContains(t, err, "a wait node must lie in the first 256 GiB")
	require.Equal(t, empty, a.loadChunk(beyond+1), "a sweep out of reach is of no use")
}

//go:build linux && (amd64 || arm64)

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

// TestHeadroomServesFarRecords: in an arena of more than 256 GiB, the next free block may be out of reach of the word
// objRecords. Then a slot record takes the headroom, which is within reach.
func TestHeadroomServesFarRecords(t *testing.T) {
	const size = 320 << 30
	bytes, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Skip("needs an address space of 320 GiB: ", err)
	}
	defer func() { require.NoError(t, unix.Munmap(bytes)) }()
	p := newNeighbours(chunkSize, 4)
	p.bytes, p.geo = bytes, plan(size, 4)
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

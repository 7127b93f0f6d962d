//go:build linux

package arenakernel

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/shm"
)

// forgeSize makes a sparse file whose header says that it is an arena of the given size, and that contains nothing else.
func forgeSize(t *testing.T, size uint64) (path string) {
	ta := newTestArena(t, 8)
	ta.join(t, "maker").close(t)
	header := make([]byte, headerSize)
	f, err := os.Open(ta.path())
	require.NoError(t, err)
	defer f.Close()
	_, err = f.ReadAt(header, 0)
	require.NoError(t, err)
	le, g := binary.LittleEndian, plan(size, 8)
	for off, v := range map[int]uint64{
		hdrSize: g.size, hdrSlotsOff: g.slotsOff, hdrDeathRecordOff: g.deathRecordOff, hdrDirOff: g.dirOff, hdrDirCount: g.dirCount,
		hdrChunksOff: g.chunksOff, hdrBlocksOff: g.blocksOff, hdrHeapOff: g.heapOff, hdrChunkCount: g.chunkCount,
	} {
		le.PutUint64(header[off:], v)
	}
	le.PutUint64(header[hdrChecksum:], checksum(header[:hdrChecksum]))
	forged, err := os.CreateTemp(shm.Dir, "forged")
	require.NoError(t, err)
	t.Cleanup(func() { os.Remove(forged.Name()) })
	defer forged.Close()
	if err := forged.Truncate(int64(size)); err != nil {
		t.Skip("needs sparse files of 8 TiB: ", err)
	}
	_, err = forged.WriteAt(header, 0)
	require.NoError(t, err)
	return forged.Name()
}

// TestInspectSkipsHoles: the cost of an inspection depends on what a file contains, and not on the size of its holes. Any
// user may make a file of many terabytes that is empty but for a header.
func TestInspectSkipsHoles(t *testing.T) {
	const size = 8 << 40
	i, err := Inspect(forgeSize(t, size))
	require.NoError(t, err)
	defer i.Close()
	fetches, fetch := 0, i.a.fetch
	i.a.fetch = func(off, n uint64) { fetches++; fetch(off, n) }
	g := plan(size, 8)
	s := i.Stats()
	require.Equal(t, AllocStats{Chunks: g.chunkCount, FreeChunks: g.chunkCount, Headroom: g.headroom.chunks(), FreeHeadroom: g.headroom.chunks(), Bytes: g.chunkCount * chunkSize}, s)
	require.Empty(t, i.Objects())
	require.NoError(t, i.Check())
	require.Equal(t, Usage{Objects: map[Offset]uint64{}}, i.Usage())
	bytes := 0
	require.NoError(t, i.EachPart(true, func(_ uint64, b []byte) error { bytes += len(b); return nil }))
	require.Less(t, bytes, 1<<20)
	require.Less(t, fetches, 1<<17, "for 2^27 chunks")
}

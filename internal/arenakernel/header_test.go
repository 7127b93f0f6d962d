//go:build linux

package arenakernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// formatted returns the contents of a new arena, in private memory.
func formatted(t testing.TB, size int64, slots int) []byte {
	var b []byte
	seg, err := shm.CreateMemfd("test", size, func(s *shm.Segment) error {
		if err := format(s, slots, false); err != nil {
			return err
		}
		b = append(b, s.Bytes()...)
		return nil
	}, nil)
	require.NoError(t, err)
	require.NoError(t, seg.Close())
	return b
}

func TestHeaderOfANewArena(t *testing.T) {
	for _, c := range []struct {
		size  int64
		slots int
	}{{1 << 20, 4}, {64 << 20, 128}, {8 << 20, MaxSlots}, {int64(minSize(1)), 1}, {int64(minSize(MaxSlots)), MaxSlots}} {
		b := formatted(t, c.size, c.slots)
		g, err := validate(b, uint64(len(b)), "x")
		require.NoError(t, err)
		require.Equal(t, plan(uint64(c.size), c.slots), g)
		require.Equal(t, c.slots, g.slots)
		require.NotZero(t, g.chunkCount)
		require.LessOrEqual(t, g.heapOff+g.chunkCount*chunkSize, g.size)
		require.Less(t, g.size-g.heapOff-g.chunkCount*chunkSize, uint64(chunkSize))
		for i, end := range []uint64{
			headerSize, g.slotsOff + uint64(g.slots)*slotStride, g.deathRecordOff + deathRecordCount*deathRecordStride,
			g.dirOff + g.dirCount*8, g.chunksOff + g.chunkCount*8, g.blocksOff + g.chunkCount*blockWords*blockWordSize, g.size,
		} {
			starts := []uint64{g.slotsOff, g.deathRecordOff, g.dirOff, g.chunksOff, g.blocksOff, g.heapOff, g.size}
			require.LessOrEqual(t, end, starts[i], "region %d", i)
		}
	}
	two := [2][]byte{formatted(t, 1<<20, 4), formatted(t, 1<<20, 4)}
	require.NotEqual(t, two[0][hdrID:hdrID+16], two[1][hdrID:hdrID+16])
}

func TestTooSmall(t *testing.T) {
	for _, slots := range []int{1, 128, MaxSlots} {
		size := int64(minSize(slots)) - chunkSize
		_, err := shm.CreateMemfd("small", size, func(s *shm.Segment) error { return format(s, slots, false) }, nil)
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
		require.ErrorContains(t, err, "memfd:small")
		require.ErrorContains(t, err, fmt.Sprint(minSize(slots)))
	}
}

// reseal recomputes the checksum of a changed header.
func reseal(b []byte) {
	binary.LittleEndian.PutUint64(b[hdrChecksum:], checksum(b[:hdrChecksum]))
}

// badHeaders are changes to the contents of an arena, each with a text that the error must contain.
var badHeaders = map[string]struct {
	change func(b []byte)
	kind   error
	says   string
}{
	"magic":                 {func(b []byte) { b[0] ^= 1 }, shmsync.ErrIncompatible, "not an arena"},
	"zeroes":                {func(b []byte) { clear(b) }, shmsync.ErrIncompatible, "not an arena"},
	"text":                  {func(b []byte) { copy(b, "#!/bin/sh\n") }, shmsync.ErrIncompatible, "not an arena"},
	"byte order":            {put32(hdrOrder, 0x04030201), shmsync.ErrIncompatible, "byte order"},
	"newer layout":          {put32(hdrVersion, LayoutVersion+1), shmsync.ErrIncompatible, "its layout is version 11, this program knows version 10"},
	"older layout":          {put32(hdrVersion, 0), shmsync.ErrIncompatible, "its layout is version 0"},
	"word size":             {put32(hdrWord, 4), shmsync.ErrIncompatible, "machine words of 4 bytes"},
	"incompatible":          {put64(hdrIncompat, 1<<40), shmsync.ErrIncompatible, "features that this program does not know (0x10000000000)"},
	"read-only":             {put64(hdrROCompat, 2), shmsync.ErrIncompatible, "does not know to write it (0x2)"},
	"checksum":              {func(b []byte) { b[hdrChecksum] ^= 1 }, shmsync.ErrCorrupt, "checksum"},
	"created":               {func(b []byte) { b[hdrCreated] ^= 1 }, shmsync.ErrCorrupt, "checksum"},
	"size":                  {put64(hdrSize, 1<<30), shmsync.ErrCorrupt, "it was made 1073741824 bytes long and is 1048576"},
	"no slots":              {put32(hdrSlots, 0), shmsync.ErrCorrupt, "0 participants"},
	"many slots":            {put32(hdrSlots, MaxSlots+1), shmsync.ErrCorrupt, "2048 participants"},
	"other slots":           {put32(hdrSlots, 5), shmsync.ErrCorrupt, "regions"},
	"slot stride":           {put32(hdrSlotStride, 64), shmsync.ErrCorrupt, "regions"},
	"slots":                 {put64(hdrSlotsOff, 1<<60), shmsync.ErrCorrupt, "regions"},
	"death records":         {put64(hdrDeathRecordOff, 4096), shmsync.ErrCorrupt, "regions"},
	"death record":          {put32(hdrDeathRecordStride, 0), shmsync.ErrCorrupt, "regions"},
	"count of death record": {put32(hdrDeathRecordCount, 1<<31), shmsync.ErrCorrupt, "regions"},
	"directory":             {put64(hdrDirOff, ^uint64(0)), shmsync.ErrCorrupt, "regions"},
	"names":                 {put64(hdrDirCount, 0), shmsync.ErrCorrupt, "regions"},
	"chunks":                {put64(hdrChunksOff, 8), shmsync.ErrCorrupt, "regions"},
	"blocks":                {put64(hdrBlocksOff, 8), shmsync.ErrCorrupt, "regions"},
	"heap":                  {put64(hdrHeapOff, 0), shmsync.ErrCorrupt, "regions"},
	"chunk size":            {put32(hdrChunkSize, 0), shmsync.ErrCorrupt, "regions"},
	"block words":           {put32(hdrBlockWords, 1), shmsync.ErrCorrupt, "regions"},
	"chunk count":           {put64(hdrChunkCount, 1<<40), shmsync.ErrCorrupt, "regions"},
	"header size":           {put32(hdrHeaderSize, 64), shmsync.ErrCorrupt, "regions"},
}

func put32(at int, v uint32) func([]byte) {
	return func(b []byte) { binary.LittleEndian.PutUint32(b[at:], v); reseal(b) }
}

func put64(at int, v uint64) func([]byte) {
	return func(b []byte) { binary.LittleEndian.PutUint64(b[at:], v); reseal(b) }
}

func TestBadHeaders(t *testing.T) {
	good := formatted(t, 1<<20, 4)
	for name, c := range badHeaders {
		t.Run(name, func(t *testing.T) {
			b := append([]byte(nil), good...)
			c.change(b)
			_, err := validate(b, uint64(len(b)), "the file")
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, "the file")
			require.ErrorContains(t, err, c.says)
		})
	}
	// An unknown compatible feature must be ignored.
	b := append([]byte(nil), good...)
	put64(hdrCompat, 1<<63)(b)
	_, err := validate(b, uint64(len(b)), "x")
	require.NoError(t, err)
	// The checksum must cover every byte that it should.
	for i := range hdrChecksum + 8 {
		b := append([]byte(nil), good[:headerSize]...)
		b[i] ^= 0x10
		_, err := validate(b, uint64(len(b)), "x")
		require.Error(t, err, "byte %d", i)
	}
	for _, n := range []int{0, 1, hdrChecksum + 8, headerSize - 1} {
		_, err := validate(good[:n], uint64(n), "x")
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
	}
}

// FuzzHeader: validate either refuses a header, or returns regions that are within the segment and
// in order.
func FuzzHeader(f *testing.F) {
	good := formatted(f, 1<<20, 4)[:headerSize]
	f.Add(good[:hdrChecksum+8], uint32(1<<20), false)
	for _, c := range badHeaders {
		b := append([]byte(nil), good...)
		c.change(b)
		f.Add(b[:hdrChecksum+8], uint32(1<<20), true)
	}
	f.Fuzz(func(t *testing.T, h []byte, size uint32, seal bool) {
		b := make([]byte, size%(4<<20)+1)
		copy(b, h)
		if seal && len(b) >= headerSize {
			copy(b, magic)
			binary.LittleEndian.PutUint64(b[hdrSize:], uint64(len(b)))
			reseal(b)
		}
		g, err := validate(b, uint64(len(b)), "fuzz")
		if err != nil {
			var e *shmsync.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "fuzz", e.Object)
			require.True(t, errors.Is(err, shmsync.ErrIncompatible) || errors.Is(err, shmsync.ErrCorrupt))
			return
		}
		require.Equal(t, uint64(len(b)), g.size)
		require.Equal(t, plan(g.size, g.slots), g)
		require.LessOrEqual(t, g.heapOff+g.chunkCount*chunkSize, g.size)
		require.Less(t, g.blocksOff, g.heapOff)
	})
}

// TestMemoryOfAnEmptyArena: an arena takes as much memory when it is created as the comment of Options.Size
// says.
func TestMemoryOfAnEmptyArena(t *testing.T) {
	for _, size := range []uint64{1 << 20, 64 << 20, 1<<30 - chunkSize, 1 << 30, 1<<30 + chunkSize, 3 << 30, 16 << 30, 1 << 47} {
		g := plan(size, 128)
		directory := float64(g.dirCount*8) / float64(size)
		if size&(size-1) == 0 {
			require.InDelta(t, 0.016, directory, 0.0005, "%d", size)
		}
		require.Greater(t, directory, 0.0155, "%d", size)
		require.Less(t, directory, 0.032, "%d", size)
		// The words of the chunks take 8 bytes for each 64 KiB.
		rest := g.fixedEnd() - g.dirCount*8 - 128*slotStride - size/chunkSize*8
		require.LessOrEqual(t, rest, uint64(128<<10), "%d", size)
	}
}

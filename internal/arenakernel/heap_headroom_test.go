//go:build linux

package arenakernel

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// fillCommon allocates all memory that a user can get with Alloc.
func fillCommon(t testing.TB, a *Arena) (blocks []Offset) {
	t.Helper()
	sizes := []uint64{4 * chunkSize, chunkSize}
	for class := classNode - 1; class >= 0; class-- {
		sizes = append(sizes, uint64(classSizes[class]))
	}
	for _, size := range sizes {
		for {
			off, err := a.Alloc(size, 0)
			if err != nil {
				require.ErrorIs(t, err, shmsync.ErrNoSpace)
				break
			}
			blocks = append(blocks, off)
		}
	}
	return blocks
}

// TestHeadroomOfEachSize: the headroom is a small part of an arena of any size, and slot records can be
// in all of its chunks.
func TestHeadroomOfEachSize(t *testing.T) {
	for _, c := range []struct{ chunks, first, records, large, nodes uint64 }{
		{0, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {3, 0, 0, 0, 0},
		{4, 3, 1, 0, 0}, {14, 13, 1, 0, 0}, {16, 15, 1, 0, 0},
		{17, 15, 1, 0, 1}, {32, 30, 1, 0, 1}, {33, 30, 1, 1, 1}, {992, 930, 31, 30, 1},
		{4096, 3840, 128, 127, 1}, {1 << 20, 1<<20 - 256, 128, 127, 1},
		{1<<22 - 1, 1<<22 - 257, 128, 127, 1},
		{1 << 22, 1<<22 - 257, 128, 127, 1}, // the last chunk is out of reach of the word objRecords
		{1 << 30, 1<<22 - 257, 128, 127, 1},
	} {
		require.Equal(t, headroom{c.first, c.records, c.large, c.nodes}, planHeadroom(chunkSize, c.chunks), "%d chunks", c.chunks)
	}
	for size := uint64(chunkSize); size <= 1<<47; size += size/5/chunkSize*chunkSize + chunkSize {
		g := plan(size, 128)
		h := g.headroom
		require.LessOrEqual(t, h.first+h.chunks(), g.chunkCount)
		require.LessOrEqual(t, 4*h.chunks(), g.chunkCount)
		// In an arena of more than about 4 TiB, even the first chunks are out of reach.
		require.Equal(t, g.chunkCount >= headroomLeast && g.heapOff+headroomMost*chunkSize <= linkUnit<<32, h.records > 0)
		if h.records > 0 {
			require.LessOrEqual(t, g.heapOff+(h.first+h.chunks())*chunkSize, uint64(linkUnit<<32))
		}
		require.Equal(t, roomOfAll, g.roomOf(h.first+h.chunks()))
		if h.records > 0 {
			require.Equal(t, roomOfAll, g.roomOf(h.first-1))
			require.Equal(t, roomOfRecords, g.roomOf(h.first))
			require.Equal(t, roomOfRecords, g.roomOf(h.first+h.records-1))
		}
		if h.large > 0 {
			require.Equal(t, roomOfLarge, g.roomOf(h.first+h.records))
			require.Equal(t, roomOfLarge, g.roomOf(h.first+h.records+h.large-1))
		}
		if h.nodes > 0 {
			require.Equal(t, roomOfNodes, g.roomOf(h.first+h.records+h.large))
		}
	}
}

// TestHeadroomIsForUsersOfObjects checks that Alloc and the creation of objects leave the headroom untouched.
// Wait nodes, and the slot records of further users of an object, use the headroom. The deletion of an object
// frees its blocks in the headroom.
func TestHeadroomIsForUsersOfObjects(t *testing.T) {
	for _, size := range []uint64{2 << 20, 4 << 20, 16 << 20} {
		t.Run(fmt.Sprint(size>>20, " MiB"), func(t *testing.T) {
			p := newNeighbours(size, 300)
			a, b := p.join(1), p.join(2)
			o, _ := withSlotRecords(t, "x", a)
			unused, _, err := a.OpenObject(spec("unused"))
			require.NoError(t, err)
			blocks := fillCommon(t, a)
			full := a.Stats()
			require.NotZero(t, full.Headroom)
			require.Equal(t, full.Headroom, full.FreeHeadroom)
			require.Equal(t, full.Headroom, full.FreeChunks)
			require.LessOrEqual(t, full.Headroom, full.Chunks/10+1)

			refused := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, shmsync.ErrNoSpace)
				require.ErrorContains(t, err, fmt.Sprint("and ", full.Headroom*chunkSize, " bytes of headroom"))
			}
			_, _, err = b.OpenObject(spec("new"))
			refused(err)
			_, _, err = b.OpenObject(spec(""))
			refused(err)
			_, err = b.ClaimBlock(64)
			refused(err)
			_, err = b.ClaimAligned(64, 4096)
			refused(err)
			_, err = a.AddBlock(o, 64, a.SlotRecords(o).Load(), func(Offset) {})
			refused(err)
			opened, _, err := b.OpenObject(spec("unused"))
			require.NoError(t, err)
			require.Equal(t, unused, opened)
			_, err = b.SlotRecord(opened, 64) // the first one
			refused(err)
			after := a.Stats()
			require.Equal(t, full.FreeHeadroom, after.FreeHeadroom)
			require.Equal(t, full.BytesUsed, after.BytesUsed)

			nodes := 0
			for err = nil; err == nil; nodes++ {
				_, err = b.ClaimNode()
			}
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			require.Equal(t, int(p.geo.headroom.nodes)*blockWords, nodes-1)
			// Slot records of all sizes share the chunks.
			sizes := []uint64{128, 192, 232, 256, 32}
			for slot := 3; slot <= 250; slot++ {
				_, err := p.join(slot).pushRecord(o.Offset, slot, sizes[slot%len(sizes)], 0, nil)
				require.NoError(t, err, "slot %d", slot)
			}
			require.NotEqual(t, full.FreeHeadroom, a.Stats().FreeHeadroom)
			_, err = b.Alloc(64, 0)
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			requireSound(t, a)

			held := 0
			for err = nil; err == nil; held++ {
				_, err = b.ClaimHeadroom(128)
			}
			require.ErrorContains(t, err, "the headroom is full, too")
			require.Equal(t, int(p.geo.headroom.records+p.geo.headroom.large)*256-248, held-1)
			_, err = p.join(300).SlotRecord(o, 128)
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			requireSound(t, a)

			p.reap(a, b.self)
			a.CloseObject(o)
			require.NoError(t, a.Delete("x"))
			sweepAll(a)
			require.Equal(t, full.FreeHeadroom-p.geo.headroom.nodes, a.Stats().FreeHeadroom)
			_, err = a.Alloc(4*chunkSize, 0)
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			for _, off := range blocks {
				a.Free(off)
			}
			requireSound(t, a)
		})
	}
}

// TestHeadroomBesideOlderPeers checks what happens if a participant of a version without headroom allocates all
// blocks of the headroom. Slot records cannot use the headroom then, but nothing else goes wrong. When these blocks
// are freed, slot records can use the headroom again.
func TestHeadroomBesideOlderPeers(t *testing.T) {
	for _, size := range []uint64{64, 256, chunkSize} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := newNeighbours(4<<20, 8)
			a, old := p.join(1), p.join(2)
			old.geo.headroom = headroom{}
			o, _ := withSlotRecords(t, "x", a)
			var blocks []Offset
			for off := Offset(1); off != 0; blocks = append(blocks, off) {
				off, _ = old.Alloc(size, 0)
			}
			blocks = blocks[:len(blocks)-1]
			require.Zero(t, a.Stats().FreeHeadroom)
			x := p.join(3)
			fillCommon(t, a)
			_, err := x.SlotRecord(o, 128)
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			require.ErrorContains(t, err, "the headroom is full, too")
			for _, off := range blocks {
				a.Free(off)
			}
			requireSound(t, a)
			_, err = x.SlotRecord(o, 128)
			require.NoError(t, err)
			fillCommon(t, a)
			_, err = p.join(4).SlotRecord(o, 128) // takes an empty slab of the older participant
			require.NoError(t, err)
			requireSound(t, a)
		})
	}
}

// TestHeadroomWithoutMemory: the file system is full. A slot record takes a part of the headroom that has
// memory already.
func TestHeadroomWithoutMemory(t *testing.T) {
	p := newNeighbours(4<<20, 400)
	a := p.join(1)
	o, _ := withSlotRecords(t, "x", a)
	fillCommon(t, a)
	withSlotRecords(t, "x", p.join(2))
	p.limit = p.reserved
	for slot := 3; slot <= 257; slot++ {
		_, err := p.join(slot).SlotRecord(o, 128)
		require.NoError(t, err)
	}
	before := a.Stats()
	_, err := p.join(258).SlotRecord(o, 128)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.ErrorContains(t, err, "tmpfs is full")
	require.Equal(t, before, a.Stats())
	requireSound(t, a)
}

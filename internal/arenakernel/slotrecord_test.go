//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// withSlotRecords opens an object and makes its slot records for all.
func withSlotRecords(t *testing.T, name string, all ...*Arena) (o Object, records []Offset) {
	t.Helper()
	for _, a := range all {
		var err error
		o, _, err = a.OpenObject(spec(name))
		require.NoError(t, err)
		off, err := a.SlotRecord(o, 128)
		require.NoError(t, err)
		records = append(records, off)
	}
	return o, records
}

func slotsOfRecords(t *testing.T, a *Arena, o Object) (slots []int) {
	t.Helper()
	require.NoError(t, a.EachSlotRecord(o, 128, func(_ Offset, slot int) bool {
		slots = append(slots, slot)
		return true
	}))
	return slots
}

// TestSlotRecordBelongsToTheSlot: each slot has one record of an object at most. The next participant
// of the slot inherits the record. The record is freed with the object.
func TestSlotRecordBelongsToTheSlot(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, b, c := p.join(1), p.join(2), p.join(3)
	o, records := withSlotRecords(t, "x", a, b, c)
	require.Equal(t, []int{3, 2, 1}, slotsOfRecords(t, a, o))
	require.EqualValues(t, 3, a.Stats().SlotRecords)
	require.Zero(t, a.Stats().Raw)
	for i, off := range records {
		require.Zero(t, off%64)
		clear(a.slice(off+SlotRecordHeader, 128-SlotRecordHeader))
		again, err := []*Arena{a, b, c}[i].SlotRecord(o, 128)
		require.NoError(t, err)
		require.Equal(t, off, again)
	}
	b.u64(records[1] + 64).Store(7)
	p.reap(a, b.self)
	requireSound(t, a)
	b = p.join(2)
	_, inherited := withSlotRecords(t, "x", b)
	require.Equal(t, records[1], inherited[0])
	require.EqualValues(t, 7, b.u64(inherited[0]+64).Load())
	require.PanicsWithValue(t, `shmsync: arena "neighbours": Free of `+records[0].String()+
		": the block there is the record of slot 1 of an object", func() { a.Free(records[0]) })
	for _, x := range []*Arena{a, b, c} {
		x.CloseObject(o)
	}
	require.NoError(t, c.Delete("x"))
	requireSound(t, a)
	s := a.Stats()
	require.Zero(t, s.SlotRecords+s.Objects+s.Claimed+s.Raw)
}

// TestSlotRecordWithoutRoom: if the heap is full, SlotRecord returns an error and leaves nothing
// behind.
func TestSlotRecordWithoutRoom(t *testing.T) {
	p := newNeighbours(1<<20, 8)
	a := p.join(1)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	for {
		if _, err := a.Alloc(128, 0); err != nil {
			break
		}
	}
	before := a.Stats()
	_, err = a.SlotRecord(o, 128)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.Equal(t, before, a.Stats())
	require.Empty(t, slotsOfRecords(t, a, o))
}

// TestSlotRecordOfTwoGoroutines: several goroutines of a process ask for the record of an object at the
// same time. They all get the same record.
func TestSlotRecordOfTwoGoroutines(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a := p.join(1)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	got := make(chan Offset)
	for range 8 {
		go func() {
			off, _ := a.SlotRecord(o, 128)
			got <- off
		}()
	}
	first := <-got
	require.NotZero(t, first)
	for range 7 {
		require.Equal(t, first, <-got)
	}
	require.EqualValues(t, 1, a.Stats().SlotRecords)
}

// TestSlotRecordsOverwritten: a peer has overwritten the list of records. A walk of the list ends, with
// an error.
func TestSlotRecordsOverwritten(t *testing.T) {
	for what, spoil := range map[string]func(a *Arena, o, other Object, records []Offset){
		"out of the arena": func(a *Arena, o, _ Object, _ []Offset) { a.SlotRecords(o).Store(1 << 31) },
		"not aligned":      func(a *Arena, o, _ Object, r []Offset) { a.u64(r[2] + recordNext).Store(uint64(r[1]) + 8) },
		"next is far away": func(a *Arena, o, _ Object, r []Offset) { a.u64(r[2] + recordNext).Store(1 << 60) },
		"a raw block": func(a *Arena, o, _ Object, _ []Offset) {
			off, _ := a.Alloc(128, 0)
			a.SlotRecords(o).Store(uint32(off / linkUnit))
		},
		"a wait node": func(a *Arena, o, _ Object, _ []Offset) {
			off, _ := a.ClaimNode()
			a.SlotRecords(o).Store(uint32(off / linkUnit))
		},
		"the object":         func(a *Arena, o, _ Object, _ []Offset) { a.SlotRecords(o).Store(uint32(o.Offset / linkUnit)) },
		"of another object":  func(a *Arena, o, other Object, _ []Offset) { a.SlotRecords(o).Store(a.SlotRecords(other).Load()) },
		"a cycle":            func(a *Arena, _, _ Object, r []Offset) { a.u64(r[0] + recordNext).Store(uint64(r[2])) },
		"itself":             func(a *Arena, _, _ Object, r []Offset) { a.u64(r[1] + recordNext).Store(uint64(r[1])) },
		"slot 0":             func(a *Arena, _, _ Object, r []Offset) { a.u32(r[1] + recordSlot).Store(0) },
		"a slot of no arena": func(a *Arena, _, _ Object, r []Offset) { a.u32(r[1] + recordSlot).Store(9) },
		"the slot twice":     func(a *Arena, _, _ Object, r []Offset) { a.u32(r[1] + recordSlot).Store(1) },
		"freed": func(a *Arena, _, _ Object, r []Offset) {
			b, _ := a.locate(r[1])
			b.word.Store(blockFree)
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := newNeighbours(3<<20, 8)
			a, b, c := p.join(1), p.join(2), p.join(3)
			o, records := withSlotRecords(t, "x", a, b, c)
			other, _ := withSlotRecords(t, "y", a)
			spoil(a, o, other, records)
			require.ErrorIs(t, a.EachSlotRecord(o, 128, func(Offset, int) bool { return true }), shmsync.ErrCorrupt)
			require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
			_, err := p.join(4).SlotRecord(o, 128)
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
			p.reap(a, c.self)
			b.CloseObject(o)
			a.CloseObject(o)
			require.NoError(t, a.Delete("x")) // some records may be lost, but no record of another object is freed
			require.Equal(t, []int{1}, slotsOfRecords(t, a, other))
		})
	}
	t.Run("too small", func(t *testing.T) {
		p := newNeighbours(3<<20, 8)
		a := p.join(1)
		o, _ := withSlotRecords(t, "x", a)
		_, err := a.SlotRecord(o, 200)
		require.ErrorIs(t, err, shmsync.ErrCorrupt)
	})
	t.Run("off the list", func(t *testing.T) {
		p := newNeighbours(3<<20, 8)
		a := p.join(1)
		o, _ := withSlotRecords(t, "x", a)
		a.SlotRecords(o).Store(0)
		require.ErrorContains(t, a.Check(), "is not on the list of the object")
	})
}

// TestClaimedBlockLikeASlotRecord: the bytes of a claimed block look like a slot record. The block is
// not on the list of the object, so the reaper of its owner frees it.
func TestClaimedBlockLikeASlotRecord(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, b := p.join(1), p.join(2)
	o, _ := withSlotRecords(t, "x", a)
	off, err := b.ClaimBlock(128)
	require.NoError(t, err)
	b.u64(off + recordObject).Store(uint64(o.Offset))
	b.u32(off + recordSlot).Store(2)
	p.reap(a, b.self)
	require.Zero(t, a.Stats().Claimed)
	require.EqualValues(t, 1, a.Stats().SlotRecords)
	requireSound(t, a)
}

// TestReaperOfARecordIsLate: a reaper has read the word of a record that its dead maker had claimed.
// Then the object is deleted, and another object gets the block of the record. The reaper must not
// change the new object.
func TestReaperOfARecordIsLate(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v, d := p.join(1), p.join(2), p.join(3)
	o, records := withSlotRecords(t, "x", v)
	r, ok := v.locate(records[0])
	require.True(t, ok)
	claimed := makeBlock(blockClaimed, v.self)
	require.True(t, r.swap(makeRecordWord(2), claimed)) // as if v had died just before it published the record
	p.kill(v.self)
	require.NoError(t, d.Delete("x"))
	small := spec("y")
	small.Size = 48
	y, _, err := d.OpenObject(small)
	require.NoError(t, err)
	require.Equal(t, r.off, y.Offset)
	require.NotEqual(t, o.Offset, y.Offset)
	head := d.u64(y.Body)
	node, err := d.PollerNode(y, head, anyNode)
	require.NoError(t, err)
	a.handles.Lock()
	a.reclaimBlock(r.chunk, r.index, claimed)
	a.handles.Unlock()
	nodes := 0
	require.NoError(t, a.EachPollerNode(head, func(off Offset, n *Node) bool {
		nodes++
		return off == node && n.Owner() == d.self
	}))
	require.Equal(t, 1, nodes)
	require.EqualValues(t, 1, a.Stats().PollerNodes)
	p.reap(a, v.self)
	requireSound(t, a)
}

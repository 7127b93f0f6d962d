//go:build linux

package arenakernel

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// withSlotRecords opens an object in each of the given participants, and makes the slot record of each participant.
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

// TestReaperFreesNoBlockThatStaleBytesName: a participant has claimed a block and died before it cleared the block. The
// block still has the bytes of an earlier object, which lead to a slot record of that object. A living participant has
// just claimed the block of this record. The reaper must not free the block of the living participant.
func TestReaperFreesNoBlockThatStaleBytesName(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, c := p.join(1), p.join(2), p.join(3)
	stale, err := b.claim(256, 1)
	require.NoError(t, err)
	named, err := c.claim(128, 1)
	require.NoError(t, err)
	b.u32(stale + objRecords).Store(uint32(named / linkUnit))
	c.u64(named + recordObject).Store(uint64(stale))
	c.u32(named + recordSlot).Store(uint32(c.mySlot))
	p.reap(a, b.self)
	require.NoError(t, c.publish(named, blockRaw))
	require.EqualValues(t, 1, a.Stats().Raw)
	require.Zero(t, a.Stats().Claimed)
	requireSound(t, a)
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

// TestRecordOfAnObjectThatIsDeletedMeanwhile: a reaper decides whether a claimed block is a slot record, while
// another participant begins to free the object. The block is on the list of the object, so the reaper must
// keep it at any moment. Otherwise the deleter would not find the rest of the list.
func TestRecordOfAnObjectThatIsDeletedMeanwhile(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v, d := p.join(1), p.join(2), p.join(3)
	o, records := withSlotRecords(t, "x", v)
	r, ok := v.locate(records[0])
	require.True(t, ok)
	object, ok := v.locate(o.Offset)
	require.True(t, ok)
	claimed := makeBlock(blockClaimed, v.self)
	p.kill(v.self)
	var over atomic.Bool
	var changes atomic.Uint64
	var deleter sync.WaitGroup
	deleter.Go(func() {
		for freeing := makeBlock(blockFreeing, d.self); !over.Load(); changes.Add(1) {
			object.word.Store(uint32(freeing))
			object.word.Store(uint32(makeBlock(blockObject, 0)))
		}
	})
	a.handles.Lock()
	defer a.handles.Unlock()
	lost := 0
	for n := 0; n < 1_000_000 || changes.Load() < 1_000_000; n++ {
		r.word.Store(uint32(claimed))
		if !a.keepRecord(r, claimed) || r.load() != makeRecordWord(2) {
			lost++
		}
	}
	over.Store(true)
	deleter.Wait()
	require.Zero(t, lost)
}

// addBlock adds a block of 128 bytes to an object, and stores the parameter content in the block. It tries again
// if another participant has pushed a record meanwhile.
func addBlock(t testing.TB, a *Arena, o Object, content uint64) Offset {
	t.Helper()
	for {
		off, err := a.AddBlock(o, 128, a.SlotRecords(o).Load(), func(off Offset) {
			for i := Offset(SlotRecordHeader); i < 128; i += 8 {
				require.Zero(t, a.u64(off+i).Load())
			}
			a.u64(off + 64).Store(content)
		})
		require.NoError(t, err)
		require.Zero(t, off%64)
		if off != 0 {
			return off
		}
	}
}

// addedBlocks returns the contents of the additional blocks of an object, the latest one first. It requires that
// their numbers fall by 1 from block to block. If until is 0, the last number must be 1. Otherwise until is an
// earlier value of the word SlotRecords, and addedBlocks leaves out the blocks that were on the list at that time.
func addedBlocks(t testing.TB, a *Arena, o Object, until uint32) (contents []uint64) {
	t.Helper()
	var numbers []uint32
	require.NoError(t, a.EachAddedBlock(o, 128, a.SlotRecords(o).Load(), until, func(off Offset, has uint64) {
		require.GreaterOrEqual(t, has, uint64(128))
		contents = append(contents, a.u64(off+64).Load())
		numbers = append(numbers, a.u32(off+recordNumber).Load())
	}))
	for i, n := range numbers {
		require.Equal(t, numbers[0]-uint32(i), n, "%v", numbers)
	}
	if until == 0 && len(numbers) > 0 {
		require.EqualValues(t, len(numbers), numbers[0])
	}
	return contents
}

// TestAddedBlocks: an object gets blocks beside its slot records. Walks of the slot records do not find
// the blocks, and walks of the blocks do not find the records. All of them are freed with the object.
func TestAddedBlocks(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, b, c := p.join(1), p.join(2), p.join(3)
	withSlotRecords(t, "x", a)
	o, _ := withSlotRecords(t, "x", b)
	require.Empty(t, addedBlocks(t, a, o, 0))
	heads := []uint32{0, a.SlotRecords(o).Load()}
	for i, by := range []*Arena{a, b, b, a} {
		addBlock(t, by, o, uint64(10+i))
		heads = append(heads, a.SlotRecords(o).Load())
	}
	withSlotRecords(t, "x", c) // a slot record before the blocks on the list
	addBlock(t, c, o, 14)
	require.Equal(t, []int{3, 2, 1}, slotsOfRecords(t, b, o))
	require.Equal(t, []uint64{14, 13, 12, 11, 10}, addedBlocks(t, c, o, 0))
	require.Equal(t, []uint64{14, 13, 12, 11, 10}, addedBlocks(t, c, o, heads[1]))
	require.Equal(t, []uint64{14, 13}, addedBlocks(t, c, o, heads[4]))
	require.Empty(t, addedBlocks(t, c, o, a.SlotRecords(o).Load()))
	n := 0
	require.NoError(t, a.EachAddedBlock(o, 128, heads[3], heads[2], func(Offset, uint64) { n++ }))
	require.Equal(t, 1, n, "a walk of a part of the list")
	require.NoError(t, a.EachAddedBlock(o, 128, heads[2], heads[2], func(Offset, uint64) { n++ }))
	require.Equal(t, 1, n)
	require.EqualValues(t, 3+5, a.Stats().SlotRecords)
	require.Zero(t, a.Stats().Raw+a.Stats().Claimed)
	requireSound(t, a)

	p.reap(a, b.self)
	requireSound(t, a)
	b = p.join(2)
	withSlotRecords(t, "x", b)
	require.Equal(t, []uint64{14, 13, 12, 11, 10}, addedBlocks(t, b, o, 0), "the blocks of a dead participant stay")
	require.EqualValues(t, 3+5, a.Stats().SlotRecords)
	for _, x := range []*Arena{a, b, c} {
		x.CloseObject(o)
	}
	x := p.join(4)
	require.NoError(t, x.Delete("x"))
	require.Zero(t, a.Stats().SlotRecords+a.Stats().Objects+a.Stats().Raw+a.Stats().Claimed)
	requireSound(t, a)
}

// TestAddBlockWithoutRoom: if the heap is full, if the numbers have run out, or if a peer has damaged
// the list, AddBlock returns an error and leaves nothing behind.
func TestAddBlockWithoutRoom(t *testing.T) {
	p := newNeighbours(1<<20, 8)
	a := p.join(1)
	o, _ := withSlotRecords(t, "x", a)
	off := addBlock(t, a, o, 7)
	fails := func(target error) {
		t.Helper()
		before := a.Stats()
		_, err := a.AddBlock(o, 128, a.SlotRecords(o).Load(), func(Offset) {})
		require.ErrorIs(t, err, target)
		after := a.Stats()
		require.Equal(t, before.BytesUsed, after.BytesUsed)
		require.Equal(t, before.SlotRecords, after.SlotRecords)
		require.Zero(t, after.Claimed)
	}
	number := a.u32(off + recordNumber)
	number.Store(1<<32 - 1)
	fails(shmsync.ErrNoSpace)
	number.Store(1)
	slot := a.u32(off + recordSlot)
	slot.Store(9)
	fails(shmsync.ErrCorrupt)
	slot.Store(1)
	for {
		if _, err := a.Alloc(128, 0); err != nil {
			break
		}
	}
	fails(shmsync.ErrNoSpace)
	require.Equal(t, []uint64{7}, addedBlocks(t, a, o, 0))
	requireSound(t, a)
}

// TestAddBlockAtTheSameTime: goroutines of several participants add blocks to an object, while others
// make slot records of the object. No block is lost, and the numbers fall along the list.
func TestAddBlockAtTheSameTime(t *testing.T) {
	p := newNeighbours(8<<20, 8)
	first := p.join(1)
	o, _, err := first.OpenObject(spec("x"))
	require.NoError(t, err)
	const participants, goroutines, each = 4, 3, 40
	var wg sync.WaitGroup
	for slot := 2; slot < 2+participants; slot++ {
		a := p.join(slot)
		_, _, err := a.OpenObject(spec("x"))
		require.NoError(t, err)
		for g := range goroutines {
			wg.Go(func() {
				known := uint32(0) // the part of the list that this goroutine has seen
				for i := range each {
					content := uint64(slot)<<32 | uint64(g)<<16 | uint64(i)
					addBlock(t, a, o, content)
					if i == each/2 {
						a.SlotRecord(o, 128)
					}
					head := a.SlotRecords(o).Load()
					own := false
					a.EachAddedBlock(o, 128, head, known, func(off Offset, _ uint64) { own = own || a.u64(off+64).Load() == content })
					if known = head; !own {
						t.Errorf("block %#x is not behind the head that was read after it was added", content)
					}
				}
			})
		}
	}
	wg.Wait()
	all := addedBlocks(t, first, o, 0)
	require.Len(t, all, participants*goroutines*each)
	last := map[uint64]uint64{} // by goroutine: the content of its block that the loop visited last
	for _, content := range all {
		if later, ok := last[content>>16]; ok {
			require.Equal(t, later-1, content)
		}
		last[content>>16] = content
	}
	require.Len(t, last, participants*goroutines)
	require.Len(t, slotsOfRecords(t, first, o), participants)
	requireSound(t, first)
}

// TestAddedBlocksOverwritten: a peer has overwritten the list of blocks. A walk of the list ends, with
// an error.
func TestAddedBlocksOverwritten(t *testing.T) {
	type list struct {
		a      *Arena
		o      Object
		blocks []Offset // in the order in which they were added
		until  uint32   // the block at which the walk is to end, or 0
	}
	number := func(l *list, i int) *atomic.Uint32 { return l.a.u32(l.blocks[i] + recordNumber) }
	next := func(l *list, i int) *atomic.Uint64 { return l.a.u64(l.blocks[i] + recordNext) }
	for what, spoil := range map[string]func(l *list){
		"a circle":                func(l *list) { next(l, 0).Store(uint64(l.blocks[3])) },
		"a circle of two":         func(l *list) { next(l, 1).Store(uint64(l.blocks[2])) },
		"itself":                  func(l *list) { next(l, 2).Store(uint64(l.blocks[2])) },
		"a repeated number":       func(l *list) { number(l, 1).Store(3) },
		"a number that rises":     func(l *list) { number(l, 0).Store(1 << 30) },
		"no number":               func(l *list) { number(l, 1).Store(0) }, // a second slot record of the slot
		"another object":          func(l *list) { l.a.u64(l.blocks[1] + recordObject).Add(64) },
		"the list is lost":        func(l *list) { next(l, 2).Store(0); l.until = uint32(l.blocks[0] / linkUnit) },
		"it leads past the block": func(l *list) { next(l, 2).Store(uint64(l.blocks[0])); l.until = uint32(l.blocks[1] / linkUnit) },
		"until is no block":       func(l *list) { l.until = uint32(l.o.Offset / linkUnit) },
	} {
		t.Run(what, func(t *testing.T) {
			p := newNeighbours(3<<20, 8)
			a := p.join(1)
			o, _ := withSlotRecords(t, "x", a)
			other, _ := withSlotRecords(t, "y", a)
			l := &list{a: a, o: o}
			for i := range uint64(4) {
				l.blocks = append(l.blocks, addBlock(t, a, o, i))
			}
			addBlock(t, a, other, 1)
			spoil(l)
			n := 0
			require.ErrorIs(t, a.EachAddedBlock(o, 128, a.SlotRecords(o).Load(), l.until, func(Offset, uint64) { n++ }), shmsync.ErrCorrupt)
			require.LessOrEqual(t, n, 4)
			if l.until == 0 {
				require.ErrorIs(t, a.EachSlotRecord(o, 128, func(Offset, int) bool { return true }), shmsync.ErrCorrupt)
				require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
			}
			a.CloseObject(o)
			require.NoError(t, a.Delete("x")) // some blocks may be lost, but no block of another object is freed
			require.Equal(t, []uint64{1}, addedBlocks(t, a, other, 0))
		})
	}
	t.Run("too small", func(t *testing.T) {
		p := newNeighbours(3<<20, 8)
		a := p.join(1)
		o, _ := withSlotRecords(t, "x", a)
		require.NoError(t, a.EachAddedBlock(o, 200, a.SlotRecords(o).Load(), 0, func(Offset, uint64) {}), "a slot record may be smaller than a block")
		addBlock(t, a, o, 1)
		require.ErrorIs(t, a.EachAddedBlock(o, 200, a.SlotRecords(o).Load(), 0, func(Offset, uint64) {}), shmsync.ErrCorrupt)
		require.NoError(t, a.EachSlotRecord(o, 128, func(Offset, int) bool { return true }))
	})
}

// TestReaperTakesNoGenerationZero checks that a reaper frees no slot record after a peer has overwritten
// slotReclaimed, the word that says which generations of a slot are already cleaned up. The block word of a
// slot record names a participant of generation 0, and no participant has this generation.
func TestReaperTakesNoGenerationZero(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	o, records := withSlotRecords(t, "x", a, b)
	b.u32(b.slot(b.mySlot) + slotReclaimed).Store(math.MaxUint32)
	a.reclaimMemory(b.self)
	at, ok := a.locate(records[1])
	require.True(t, ok)
	require.Equal(t, makeRecordWord(b.mySlot), at.load())
	require.ElementsMatch(t, []int{1, 2}, slotsOfRecords(t, a, o))
}

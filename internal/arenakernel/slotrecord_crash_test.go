//go:build linux && crashpoint

package arenakernel

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/shm"
)

// TestDeleteBeforeTheMakerOfARecordIsReaped: a participant has died after it pushed its record, and the
// object is deleted before the reap. The record is freed only once. The reap must not free the block
// again when it is in use for something else.
func TestDeleteBeforeTheMakerOfARecordIsReaped(t *testing.T) {
	for _, stopped := range []string{"", "arena.delete.freeing", "arena.slotrecord.freeing", "arena.slotrecord.freeing:2"} {
		t.Run(stopped, func(t *testing.T) {
			p := newNeighbours(3<<20, 8)
			a, v, d := p.join(1), p.join(2), p.join(3)
			o, _ := withSlotRecords(t, "x", a)
			a.CloseObject(o)
			stopAfterPush(t, v)
			require.EqualValues(t, 1, a.Stats().Claimed)
			p.kill(v.self)
			if stopped == "" {
				require.NoError(t, d.Delete("x"))
			} else {
				point, n := pointOf(stopped)
				require.True(t, abandon(point, n, func() { d.Delete("x") }))
			}
			other, records := withSlotRecords(t, "y", a, p.join(4)) // these may get the blocks that were freed
			p.reap(a, v.self)
			p.reap(a, d.self)
			requireSound(t, a)
			s := a.Stats()
			require.Zero(t, s.Claimed)
			require.EqualValues(t, 1, s.Objects)
			require.EqualValues(t, 2, s.SlotRecords)
			require.Equal(t, []int{4, 1}, slotsOfRecords(t, a, other))
			require.Len(t, records, 2)
		})
	}
}

// stopAfterPush makes v push its slot record of x, and stops v there, before the record is published.
func stopAfterPush(t *testing.T, v *Arena) {
	t.Helper()
	require.True(t, abandon("arena.slotrecord.pushed", 1, func() {
		o, _, _ := v.OpenObject(spec("x"))
		v.SlotRecord(o, 128)
	}))
}

// TestStrangerMakesARecordDuringADelete: a reaper that has not opened an object makes a slot record of it
// while the object is being deleted, and dies before it has published the record. No record is left.
func TestStrangerMakesARecordDuringADelete(t *testing.T) {
	for _, reaped := range []bool{false, true} {
		t.Run(fmt.Sprintf("reaped before the records are freed: %v", reaped), func(t *testing.T) {
			p := newNeighbours(3<<20, 8)
			a, v, d := p.join(1), p.join(2), p.join(3)
			o, _ := withSlotRecords(t, "x", a)
			a.CloseObject(o)
			crashpoint.ArmFunc("arena.delete.freeing", 1, func() {
				off, err := v.pushRecord(o.Offset, v.mySlot, 192, 0, nil)
				require.NoError(t, err)
				b, ok := v.locate(off)
				require.True(t, ok)
				require.True(t, b.swap(makeRecordWord(v.mySlot), makeBlock(blockClaimed, v.self)))
				p.kill(v.self)
				if reaped {
					p.reap(a, v.self)
				}
			})
			defer crashpoint.Disarm()
			require.NoError(t, d.Delete("x"))
			if !reaped {
				p.reap(a, v.self)
			}
			requireSound(t, a)
			require.Zero(t, a.Stats().SlotRecords)
			require.Zero(t, a.Stats().Claimed)
			require.Zero(t, a.Stats().Objects)
		})
	}
}

// TestMakerOfARecordIsStopped: a participant is stopped after it has pushed its record. Other
// participants are not delayed.
func TestMakerOfARecordIsStopped(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	o, _ := withSlotRecords(t, "x", a)
	stopAfterPush(t, v)
	require.Equal(t, []int{2, 1}, slotsOfRecords(t, a, o))
	withSlotRecords(t, "x", p.join(3))
	require.Equal(t, []int{3, 2, 1}, slotsOfRecords(t, a, o))
	requireSound(t, a)
}

// TestRecordBehindADamagedPlaceStays: a participant has died after it pushed its record, and a peer has
// damaged the list, so that it does not lead to that record any more. Open handles may still use the
// record, so its block must not be reused.
func TestRecordBehindADamagedPlaceStays(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	o, _ := withSlotRecords(t, "x", a)
	stopAfterPush(t, v)
	withSlotRecords(t, "x", p.join(3))
	head := a.SlotRecords(o)
	was := head.Swap(1)
	p.kill(v.self)
	p.reap(a, v.self)
	require.Zero(t, a.Stats().Claimed)
	head.Store(was)
	require.Equal(t, []int{3, 2, 1}, slotsOfRecords(t, a, o))
	require.EqualValues(t, 3, a.Stats().SlotRecords)
	requireSound(t, a)
}

// TestRecordsOfAGuardedObjectStay: while a reaper guards an object that is deleted, the slot records of
// the object are not freed.
func TestRecordsOfAGuardedObjectStay(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	o, _ := withSlotRecords(t, "x", a)
	a.CloseObject(o)
	v.guard(o.Offset) // v guards the object and is stopped
	require.NoError(t, a.Delete("x"))
	require.EqualValues(t, 1, a.Stats().SlotRecords)
	require.Equal(t, []int{1}, slotsOfRecords(t, v, o))
	requireSound(t, a)
	v.unguard()
	a.flushDeferred()
	require.Zero(t, a.Stats().SlotRecords+a.Stats().Claimed)
}

// TestCloseWhileARecordIsMade: a process closes the arena while one of its goroutines makes a slot
// record or adds a block. The list of records stays intact.
func TestCloseWhileARecordIsMade(t *testing.T) {
	for _, point := range []string{"arena.slotrecord.claimed", "arena.slotrecord.pushed"} {
		t.Run(point, func(t *testing.T) {
			closesWhile(t, point, 1, func(a *Arena, o Object) error { _, err := a.SlotRecord(o, 128); return err })
		})
		t.Run(point+", block", func(t *testing.T) {
			closesWhile(t, point, 2, func(a *Arena, o Object) error {
				_, err := a.AddBlock(o, 128, a.SlotRecords(o).Load(), func(Offset) {})
				return err
			})
		})
	}
}

// closesWhile closes the arena while the function add is at a crash point. After that, another participant
// makes its record. The parameter records is the number of slot records and additional blocks that the object
// must have then.
func closesWhile(t *testing.T, point string, records uint64, add func(a *Arena, o Object) error) {
	seg, err := shm.CreateMemfd("test", 1<<20, func(s *shm.Segment) error { return format(s, 4, false) }, nil)
	require.NoError(t, err)
	dup, err := shm.FromFile(seg.File(), nil)
	require.NoError(t, err)
	a, err := FromSegment(seg, nil)
	require.NoError(t, err)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	closed := make(chan error, 1)
	crashpoint.ArmFunc(point, 1, func() {
		go func() { closed <- a.Close() }()
		pollUntil(a.Closing)
		select {
		case err := <-closed:
			closed <- err
		case <-time.After(100 * time.Millisecond):
		}
	})
	err = add(a, o)
	crashpoint.Disarm()
	require.NoError(t, err)
	require.NoError(t, <-closed)
	require.ErrorIs(t, add(a, o), shmsync.ErrClosed)

	b, err := FromSegment(dup, nil)
	require.NoError(t, err)
	defer b.Close()
	requireSound(t, b)
	o, _ = withSlotRecords(t, "x", b)
	require.Equal(t, records, b.Stats().SlotRecords)
	b.CloseObject(o)
	require.NoError(t, b.Delete("x"))
	require.Zero(t, b.Stats().SlotRecords+b.Stats().Claimed)
}

// TestFreedRecordsAreThoseThatWereChecked: a deleter frees the records of an object. If a peer has got
// the block of a record meanwhile, the deleter must not free that block.
func TestFreedRecordsAreThoseThatWereChecked(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, b, c := p.join(1), p.join(2), p.join(3)
	o, records := withSlotRecords(t, "x", a, b, c)
	r, ok := a.locate(records[1])
	require.True(t, ok)
	crashpoint.ArmFunc("arena.slotrecord.freeing", 1, func() { r.word.Store(blockRaw) })
	defer crashpoint.Disarm()
	for _, n := range []*Arena{a, b, c} {
		n.CloseObject(o)
	}
	require.NoError(t, a.Delete("x"))
	require.Equal(t, blockWord(blockRaw), r.load())
	require.Zero(t, a.Stats().SlotRecords)
	a.Free(r.off)
	requireSound(t, a)
}

// TestAddBlockDies: a participant dies while it adds a block to an object. The block is on the list of
// the object, or nothing of it is left. Others add blocks before and after the reap.
func TestAddBlockDies(t *testing.T) {
	for point, pushed := range map[string]bool{"arena.slotrecord.claimed": false, "arena.slotrecord.before_push": false, "arena.slotrecord.pushed": true} {
		t.Run(point, func(t *testing.T) {
			for _, early := range []bool{false, true} {
				p := newNeighbours(3<<20, 8)
				a, v := p.join(1), p.join(2)
				o, _ := withSlotRecords(t, "x", a, v)
				addBlock(t, a, o, 1)
				require.True(t, abandon(point, 1, func() { v.AddBlock(o, 128, v.SlotRecords(o).Load(), func(off Offset) { v.u64(off + 64).Store(2) }) }))
				addBlock(t, a, o, 3) // while v is stopped
				want := []uint64{3, 1}
				if pushed {
					want = []uint64{3, 2, 1}
				}
				require.Equal(t, want, addedBlocks(t, a, o, 0))
				require.EqualValues(t, 1, a.Stats().Claimed)
				requireSound(t, a)
				if p.kill(v.self); early { // the object is deleted before the reap
					a.CloseObject(o)
					require.NoError(t, p.join(3).Delete("x"))
					other, _ := withSlotRecords(t, "y", a) // the new object may get the blocks that were freed
					addBlock(t, a, other, 5)
					p.reap(a, v.self)
					require.Equal(t, []uint64{5}, addedBlocks(t, a, other, 0))
					require.EqualValues(t, 2, a.Stats().SlotRecords)
					require.Zero(t, a.Stats().Claimed)
					requireSound(t, a)
					continue
				}
				p.reap(a, v.self)
				require.Zero(t, a.Stats().Claimed)
				require.Equal(t, want, addedBlocks(t, a, o, 0))
				addBlock(t, a, o, 4)
				require.Equal(t, append([]uint64{4}, want...), addedBlocks(t, a, o, 0))
				require.EqualValues(t, 2+1+len(want), a.Stats().SlotRecords)
				requireSound(t, a)
				a.CloseObject(o)
				require.NoError(t, a.Delete("x"))
				require.Zero(t, a.Stats().SlotRecords+a.Stats().Claimed+a.Stats().Objects)
				requireSound(t, a)
			}
		})
	}
}

// TestAddBlockMeetsAnother: another participant adds a block or makes a slot record just before a
// participant pushes its block. The block gets a number that is greater than that of the other block.
func TestAddBlockMeetsAnother(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, b, c := p.join(1), p.join(2), p.join(3)
	o, _ := withSlotRecords(t, "x", a)
	_, _, err := c.OpenObject(spec("x"))
	require.NoError(t, err)
	crashpoint.ArmFunc("arena.slotrecord.before_push", 1, func() {
		addBlock(t, b, o, 1)
		crashpoint.ArmFunc("arena.slotrecord.before_push", 1, func() { // the second try of a
			_, err := c.SlotRecord(o, 128)
			require.NoError(t, err)
		})
	})
	defer crashpoint.Disarm()
	before := crashpoint.HitCount("arena.slotrecord.before_push")
	addBlock(t, a, o, 2)
	require.Equal(t, before+5, crashpoint.HitCount("arena.slotrecord.before_push"), "three tries of a, and one each of the others")
	require.Equal(t, []uint64{2, 1}, addedBlocks(t, a, o, 0))
	require.Equal(t, []int{3, 1}, slotsOfRecords(t, a, o))
	requireSound(t, a)
}

// TestDeleteWithBlocksDies: a participant dies while it frees the blocks of an object that it deletes.
// The reaper frees the rest.
func TestDeleteWithBlocksDies(t *testing.T) {
	for n := 1; n <= 4; n++ {
		p := newNeighbours(3<<20, 8)
		a, v := p.join(1), p.join(2)
		o, _ := withSlotRecords(t, "x", v)
		for i := range uint64(3) {
			addBlock(t, v, o, i)
		}
		v.CloseObject(o)
		require.True(t, abandon("arena.slotrecord.freeing", n, func() { v.Delete("x") }))
		require.EqualValues(t, 4-n, a.Stats().SlotRecords)
		p.reap(a, v.self)
		require.Zero(t, a.Stats().SlotRecords+a.Stats().Claimed+a.Stats().Objects)
		requireSound(t, a)
	}
}

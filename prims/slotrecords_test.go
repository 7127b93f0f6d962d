//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestHiddenRecordStaysKnown: a peer shortens the list of slot records, which hides a record. A process that has read
// the record before still takes it into account.
func TestHiddenRecordStaysKnown(t *testing.T) {
	a := newArena(t, nil)
	rw, err := prims.OpenRWMutex(a, "rw", nil)
	require.NoError(t, err)
	b := newBarrier(t, a, "b", 2, nil)
	other := proctest.Start(t, "slotrecords/other", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	other.Await(t)
	require.False(t, rw.TryLock(), "the other process reads; the call also reads the list")
	o, err := objectNamed(a, "rw")
	require.NoError(t, err)
	undo := hideLatestRecord(t, a, o)
	require.False(t, rw.TryLock(), "the other process still reads")
	undo()

	o, err = objectNamed(a, "b")
	require.NoError(t, err)
	_, slots := slotRecords(t, a, o)
	require.True(t, b.HasRecordOf(slots[0]))
	undo = hideLatestRecord(t, a, o)
	require.True(t, b.HasRecordOf(slots[0]))
	undo()
	other.Kill(t)
	alone(t, a, 1)
	require.True(t, rw.TryLock())
	rw.Unlock()
	sound(t, a)
}

// slotRecords returns the offsets and the slots of the slot records of o. The latest record comes first.
func slotRecords(t *testing.T, a *arena.Arena, o arenakernel.Object) (offs []arenakernel.Offset, slots []int) {
	t.Helper()
	require.NoError(t, (*arenakernel.Arena)(a).EachSlotRecord(o, 0, func(off arenakernel.Offset, slot int) bool {
		offs, slots = append(offs, off), append(slots, slot)
		return true
	}))
	return offs, slots
}

// hideLatestRecord overwrites the head of the list of slot records so that the list begins with the second
// record.
func hideLatestRecord(t *testing.T, a *arena.Arena, o arenakernel.Object) (undo func()) {
	t.Helper()
	offs, _ := slotRecords(t, a, o)
	require.GreaterOrEqual(t, len(offs), 2)
	list := (*arenakernel.Arena)(a).SlotRecords(o)
	head := list.Load()
	list.Store(uint32(offs[1] / (offs[0] / arenakernel.Offset(head))))
	return func() { list.Store(head) }
}

// damageRecords overwrites the head of the list of slot records with an impossible offset.
func damageRecords(_ *testing.T, a *arena.Arena, o arenakernel.Object) (undo func()) {
	list := (*arenakernel.Arena)(a).SlotRecords(o)
	head := list.Swap(1)
	return func() { list.Store(head) }
}

func init() {
	proctest.Register("slotrecords/other", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		rw, err := prims.OpenRWMutex(a, "rw", nil)
		if err != nil {
			c.Fatal(err)
		}
		if _, err := prims.OpenBarrier(a, "b", 2, nil); err != nil {
			c.Fatal(err)
		}
		rw.RLock()
		c.Ready()
		c.Await()
	})
}

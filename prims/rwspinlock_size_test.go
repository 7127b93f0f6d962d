//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// namedRWSpin opens the RWSpinLock with the name that the tests of this file give to other processes.
func namedRWSpin(t *testing.T, a *arena.Arena) *prims.RWSpinLock {
	t.Helper()
	l, err := prims.OpenRWSpinLock(a, "rw", nil)
	require.NoError(t, err)
	return l
}

// TestRWSpinLockSize: the body of an RWSpinLock has the same size for any number of participants. Only the open bits of
// the object grow: there is one bit for each slot of the arena. The first participant of a slot that opens the
// RWSpinLock gets a slot record for its count. The later participants of the slot use the same record.
func TestRWSpinLockSize(t *testing.T) {
	requireSizes(t, 128, func(a *arena.Arena) (sized, error) { return prims.OpenRWSpinLock(a, "", nil) })
	a := newArena(t, nil)
	l := namedRWSpin(t, a)
	before := a.Stats()
	for i := range 2 {
		other := remoteSpin(t, a, "reader")
		other.must(t, "rlock", "rw")
		require.False(t, l.TryLock())
		require.Len(t, l.State().Readers, 1)
		if after := a.Stats(); i == 0 {
			require.EqualValues(t, 1, after.SlotRecords-before.SlotRecords)
			require.EqualValues(t, 128, after.BytesUsed-before.BytesUsed)
			before = after
		} else {
			require.Equal(t, before.SlotRecords, after.SlotRecords, "the next participant of a slot inherits the record")
		}
		other.proc.Kill(t)
		alone(t, a, 1)
		eventually(t, "the reaper takes the hold back", func() string { return words(a) }, func() bool { return l.Bits() == 0 })
		require.True(t, l.TryLock())
		l.Unlock()
	}
	sound(t, a)
}

// TestRWSpinLockWithoutRoom: if there is no room for the count of this process, opening the RWSpinLock fails and leaves
// nothing behind. So a later RLock never fails for lack of memory.
func TestRWSpinLockWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	named := namedRWSpin(t, a)
	require.NoError(t, named.Close())
	withoutRoom(t, a, 1) // there is room for an RWSpinLock, and not for its record
	before := a.Stats()
	_, err := prims.OpenRWSpinLock(a, "", nil)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.Equal(t, before, a.Stats(), "the anonymous object is deleted")
	named, err = prims.OpenRWSpinLock(a, "rw", nil)
	require.NoError(t, err, "the slot has its record")
	named.RLock()
	named.RUnlock()
}

// TestRWSpinLockIsRecoveredWithoutRoom: in a full arena, a participant that has never opened an RWSpinLock recovers
// it, because a recovery needs no count of the participant. If the list of counts is corrupt, the recovery fails.
func TestRWSpinLockIsRecoveredWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 2})
	holder := remoteSpin(t, a, "holder")
	holder.must(t, "lock", "rw")
	withoutRoom(t, a, 0)
	holder.proc.Kill(t)
	alone(t, a, 1)
	before := a.Stats()
	o, err := objectNamed(a, "rw")
	require.NoError(t, err)
	undo := damageRecords(t, a, o)
	nothing := func() error { return nil }
	require.ErrorIs(t, prims.RecoverAt(a, arena.Object(o), 0, nothing), shmsync.ErrCorrupt)
	undo()
	lost, err := prims.RecoverAll(a, func(prims.Lost) error { return nil })
	require.NoError(t, err)
	require.Equal(t, []string{"rw"}, namesOf(lost))
	require.NoError(t, prims.RecoverAt(a, arena.Object(o), 0, nothing), "a healthy one, too")
	require.Equal(t, before.SlotRecords, a.Stats().SlotRecords)
	require.Equal(t, before.BytesUsed, a.Stats().BytesUsed)
	_, err = prims.OpenRWSpinLock(a, "rw", nil)
	require.ErrorIs(t, err, shmsync.ErrNoSpace, "the arena is full; otherwise this test would show nothing")
	other := remoteSpin(t, a, "holder") // this process gets the slot of the dead holder
	other.must(t, "lock", "rw")
}

// TestRWSpinLockRemembersItsReaders checks that a process does not forget a reader whose slot record it has found. A
// peer then hides this record, or damages the list of slot records. The process still does not get the lock for writing
// while the reader has its hold. With a damaged list, writers get an error, because the list may lack a reader. Readers
// still get the lock. If the reader dies while its record cannot be found, its hold ends nevertheless.
func TestRWSpinLockRemembersItsReaders(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, a *arena.Arena, o arenakernel.Object) (undo func()){
		"damaged": damageRecords, "shorter": hideLatestRecord,
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			l := namedRWSpin(t, a)
			other := remoteSpin(t, a, "reader")
			other.must(t, "rlock", "rw")
			require.False(t, l.TryLock(), "the reader has the lock; the call also reads the list")
			undo := change(t, a, l.Object())
			require.False(t, l.TryLock())
			l.RLock()
			l.RUnlock()
			other.must(t, "runlock", "rw")
			if what == "damaged" {
				require.ErrorIs(t, l.LockContext(t.Context()), shmsync.ErrCorrupt)
				require.ErrorIs(t, l.State().Err, shmsync.ErrCorrupt)
				require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
				require.Contains(t, words(a), "corrupt")
				l.LockUpgradable()
				require.ErrorIs(t, l.UpgradeContext(t.Context()), shmsync.ErrCorrupt)
				require.False(t, l.TryUpgrade())
				l.UnlockUpgradable()
				_, err := prims.OpenRWSpinLock(a, "rw", nil)
				require.ErrorIs(t, err, shmsync.ErrCorrupt)
			} else {
				require.True(t, l.TryLock())
				l.Unlock()
			}
			other.must(t, "rlock", "rw")
			require.False(t, l.TryLock())
			other.proc.Kill(t)
			alone(t, a, 1)
			undo()
			eventually(t, "the hold of the dead is taken back", func() string { return words(a) }, l.TryLock)
			l.Unlock()
			sound(t, a)
		})
	}
}

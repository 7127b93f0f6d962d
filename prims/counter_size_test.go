//go:build linux

package prims_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// TestCounterSize: the size of a WaitGroup or a Latch does not depend on the number of participants that its arena can
// have, except for one bit for each slot of the arena. A participant that uses the object adds 128 bytes, unless an
// earlier participant in the same slot has added them.
func TestCounterSize(t *testing.T) {
	requireSizes(t, 128, func(a *arena.Arena) (sized, error) { return prims.OpenWaitGroup(a, "", nil) })
	requireSizes(t, 128, func(a *arena.Arena) (sized, error) { return prims.OpenLatch(a, "", 3, nil) })
	a := newArena(t, &arena.Options{Size: 16 << 20, Counted: true})
	g := newWaitGroup(t, a, "g")
	require.EqualValues(t, 192, bodySize(t, a, g.Offset()), "the counters follow")
	g.Add(1)
	one := a.Stats().SlotRecords
	for range 2 {
		x := gateActor(t, a, "x")
		x.must(t, order{Op: "wg.add", Object: "g", N: 1})
		require.Equal(t, one+1, a.Stats().SlotRecords)
		x.proc.Kill(t)
		alone(t, a, 1)
		require.Equal(t, one+1, a.Stats().SlotRecords, "the next participant of a slot inherits the record")
		require.True(t, g.Reset())
		require.EqualValues(t, 1, g.State().Count)
	}
	g.Done()
	sound(t, a)
}

// TestCounterRecordWithoutRoom: if there is no memory for the share of this process, the open fails and leaves nothing
// behind.
func TestCounterRecordWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	named := newWaitGroup(t, a, "named")
	require.NoError(t, named.Close())
	withoutRoom(t, a, 1) // one block for the object
	before := a.Stats()
	_, err := prims.OpenLatch(a, "", 2, nil)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.Equal(t, before, a.Stats(), "the anonymous object is deleted")
	named = newWaitGroup(t, a, "named")
	named.Add(1)
	named.Done()
}

// TestWaitGroupReapedByOther: a process that has not opened the WaitGroup reaps a participant. The reaper gets a slot
// record only if the participant and another process both have undone work. If the arena has no room for the slot
// record, waiters find the undone work of the participant. If there is such work, all waits fail and name the
// participant.
func TestWaitGroupReapedByOther(t *testing.T) {
	for _, c := range []struct {
		name               string
		shared, owes, room bool
	}{
		{"all of the work", false, true, true},
		{"a part of the work", true, true, true},
		{"nothing", true, false, true},
		{"no room", true, true, false},
	} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, ", waits ", waits), func(t *testing.T) {
				a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 5})
				peer, victim := gateActor(t, a, "peer"), gateActor(t, a, "victim")
				peer.must(t, order{Op: "wg.add", Object: "g", N: 1})
				victim.must(t, order{Op: "wg.add", Object: "g", N: 3})
				if !c.shared {
					peer.must(t, order{Op: "wg.add", Object: "g", N: -4})
					victim.must(t, order{Op: "wg.add", Object: "g", N: 4})
				}
				if !c.owes {
					victim.must(t, order{Op: "wg.add", Object: "g", N: -3})
				}
				o, err := objectNamed(a, "g")
				require.NoError(t, err)
				id := 0
				if waits {
					id = gateBlocked(t, a, peer, o.Offset, order{Op: "wg.waitctx", Object: "g"})
				}
				peer.proc.Stop(t)
				spare, err := a.Alloc(128, 0) // room for one record
				require.NoError(t, err)
				if !c.room {
					fill(t, a)
				}
				before := a.Stats().SlotRecords
				victim.proc.Kill(t)
				alone(t, a, 2)
				want := before
				if c.shared && c.owes && c.room {
					want++
				}
				require.Equal(t, want, a.Stats().SlotRecords)
				a.Free(spare)
				g := newWaitGroup(t, a, "g")
				if c.owes {
					require.ErrorIs(t, g.State().Err, shmsync.ErrOwnerDead)
					require.Equal(t, "victim", g.State().Who.Label)
					err := g.WaitContext(t.Context())
					require.ErrorIs(t, err, shmsync.ErrOwnerDead)
					require.Equal(t, "victim", identityOf(err).Label)
				}
				peer.proc.Cont(t)
				if waits && c.owes {
					gateRefused(t, peer.wait(t, id), "victim")
				}
				if c.owes {
					gateRefused(t, peer.do(t, order{Op: "wg.waitctx", Object: "g"}), "victim")
					peer.must(t, order{Op: "wg.add", Object: "g", N: -4})
				} else {
					peer.must(t, order{Op: "wg.done", Object: "g"})
					if waits {
						gateSmooth(t, peer.wait(t, id))
					}
				}
				gateSmooth(t, peer.do(t, order{Op: "wg.waitctx", Object: "g"}))
				sound(t, a)
			})
		}
	}
}

// TestLatchClaimTakesOverWithoutRoom: a process that has claimed a part of a Latch dies while its reaper has no room
// for a slot record. A later Claim takes over that part.
func TestLatchClaimTakesOverWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 5})
	peer, victim := gateActor(t, a, "peer"), gateActor(t, a, "victim")
	peer.must(t, order{Op: "latch.open", Object: "l", N: 6})
	victim.must(t, order{Op: "latch.claim", Object: "l", N: 2})
	peer.proc.Stop(t)
	spare, err := a.Alloc(128, 0)
	require.NoError(t, err)
	fill(t, a)
	victim.proc.Kill(t)
	alone(t, a, 2)
	a.Free(spare)
	o, err := objectNamed(a, "l")
	require.NoError(t, err)
	l, err := prims.LatchAt(a, o.Offset)
	require.NoError(t, err)
	require.ErrorIs(t, l.State().Err, shmsync.ErrOwnerDead)
	l.Claim(2)
	require.NoError(t, l.State().Err)
	require.EqualValues(t, 2, l.State().Own)
	peer.proc.Cont(t)
	sound(t, a)
}

// TestWaitGroupRemembersItsShares: a peer damages the list of slot records, or shortens it. Then a participant dies. A
// process that had read the records before the damage still learns which participant left work undone.
func TestWaitGroupRemembersItsShares(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, a *arena.Arena, o arenakernel.Object) (undo func()){
		"damaged": damageRecords, "shorter": hideLatestRecord,
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			g := newWaitGroup(t, a, "g")
			victim := gateActor(t, a, "victim")
			g.Add(1)
			victim.must(t, order{Op: "wg.add", Object: "g", N: 2})
			require.EqualValues(t, 3, g.State().Count, "State counts all work, and reads the list")
			o, err := objectNamed(a, "g")
			require.NoError(t, err)
			undo := change(t, a, o)
			victim.proc.Kill(t)
			alone(t, a, 1)
			err = g.WaitContext(t.Context())
			require.ErrorIs(t, err, shmsync.ErrOwnerDead)
			require.Equal(t, "victim", identityOf(err).Label)
			undo()
			require.True(t, g.Reset())
			g.Done()
			require.NoError(t, g.WaitContext(t.Context()))
			sound(t, a)
		})
	}
}

// TestWaitGroupTornList: a peer damages the list of slot records before a process has read it. Calls and waits end, with
// ErrCorrupt if they need the list.
func TestWaitGroupTornList(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	x := gateActor(t, a, "x")
	x.must(t, order{Op: "wg.add", Object: "g", N: 2})
	g.Add(1)
	o, err := objectNamed(a, "g")
	require.NoError(t, err)
	undo := damageRecords(t, a, o)
	returns := func(what string, f func()) {
		t.Helper()
		require.NoError(t, guarded(what, func() string { return words(a) }, f))
	}
	returns("Wait", func() { require.ErrorIs(t, g.WaitContext(t.Context()), shmsync.ErrCorrupt) })
	returns("Claim", func() { require.Panics(t, func() { g.Claim(1) }) })
	returns("State", func() { require.EqualValues(t, 3, g.State().Count) })
	returns("Open", func() {
		_, err := prims.OpenWaitGroup(a, "g", nil)
		require.ErrorIs(t, err, shmsync.ErrCorrupt)
	})
	require.Error(t, a.Check())
	returns("Add", func() { g.Add(1); g.Add(-4) })
	require.NoError(t, g.WaitContext(t.Context()), "the counter is 0")
	undo()
	g.Add(1)
	g.Done()
	require.NoError(t, g.Close())
	sound(t, a)
}

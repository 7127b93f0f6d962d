//go:build linux && crashpoint

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

var autoEvent = &prims.EventOptions{Mode: prims.EventAutoReset}

// TestEventRecordAtEveryPoint: a process dies, or is stopped, while it makes its slot record of an
// auto-reset Event. That record is the first of the Event or a later one. Other processes can open the
// Event, wait, and get tokens, and the Event can be deleted.
func TestEventRecordAtEveryPoint(t *testing.T) {
	for _, point := range []string{"arena.slotrecord.claimed", "arena.slotrecord.before_push", "arena.slotrecord.pushed"} {
		for name, stop := range map[string]bool{"dies": false, "is stopped": true} {
			for _, first := range []bool{true, false} {
				what := point + "/" + name
				if first {
					what += "/first"
				}
				t.Run(what, func(t *testing.T) { eventRecordAt(t, point, stop, first) })
			}
		}
	}
}

func eventRecordAt(t *testing.T, point string, stop, first bool) {
	a := newArena(t, nil)
	if !first {
		e, err := prims.OpenEvent(a, "e", autoEvent)
		require.NoError(t, err)
		require.NoError(t, e.Close())
	}
	env := "SHMSYNC_CRASHPOINT"
	if stop {
		env = "SHMSYNC_CRASHPOINT_STOP"
	}
	victim := eventVictim(t, a, env, point, order{Op: "e.auto", Object: "e"})
	e, err := prims.OpenEvent(a, "e", autoEvent)
	require.NoError(t, err)
	x := sequencerActor(t, a, "waits")
	for range 2 {
		id := x.queues(t, a, e.Offset(), eventWait)
		e.Set()
		x.ok(t, id)
		e.Set()
		x.must(t, eventWait)
	}
	require.False(t, e.IsSet())
	x.proc.Kill(t)
	if stop {
		victim.proc.Kill(t)
	}
	alone(t, a, 1)
	require.Zero(t, e.Counted())
	require.NoError(t, e.Close())
	require.Zero(t, a.Stats().Claimed)
	require.NoError(t, a.Delete("e"))
	require.Zero(t, a.Stats().SlotRecords)
	require.NoError(t, a.Check())
}

// TestEventRemembersItsShares: a peer damages the list of slot records, or makes it shorter. A process that
// has already read the records still counts the waits in them.
func TestEventRemembersItsShares(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, a *arena.Arena, o arenakernel.Object) (undo func()){
		"damaged": damageRecords, "shorter": hideLatestRecord,
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			e, err := prims.OpenEvent(a, "e", autoEvent)
			require.NoError(t, err)
			x := sequencerActor(t, a, "waits")
			ids := []int{x.queues(t, a, e.Offset(), eventWait), x.queues(t, a, e.Offset(), eventWait)}
			require.EqualValues(t, 2, e.Counted())
			undo := change(t, a, e.Object())
			x.proc.Stop(t)
			for range 3 {
				e.Set()
			}
			require.EqualValues(t, 3, e.Tokens(), "one for each wait, and one for the next caller")
			x.proc.Cont(t)
			x.ok(t, ids[0])
			x.ok(t, ids[1])
			require.True(t, e.TryWait())
			require.False(t, e.TryWait())
			undo()
			sound(t, a)
		})
	}
}

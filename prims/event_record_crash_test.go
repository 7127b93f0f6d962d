//go:build linux && crashpoint

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

var autoEvent = &prims.EventOptions{Mode: prims.EventAutoReset}

// A process dies, or is stopped, while it makes its record of an auto-reset Event: the first record, which
// is the base, or a later one. Others open the Event, wait, and are served, and it can be deleted.
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
	require.Zero(t, e.Unseen()+e.Spare())
	require.NoError(t, e.Close())
	require.Zero(t, a.Stats().Claimed)
	require.NoError(t, a.Delete("e"))
	require.Zero(t, a.Stats().SlotRecords)
	require.NoError(t, a.Check())
}

// The first process that opens an auto-reset Event is stopped before its record, which is the base, is no
// longer a claimed block. Another process dies at each step of a grant. The next one carries out its redo log.
func TestEventRedoLogNamesAClaimedRecord(t *testing.T) {
	for _, point := range []string{
		"event.set.stored", "event.hand.taken", "monitor.resolve.resolved", "event.hand.given",
		"monitor.commit.logged", "monitor.commit.begun", "monitor.account.committed", "monitor.released",
	} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			stopped := eventVictim(t, a, "SHMSYNC_CRASHPOINT_STOP", "arena.slotrecord.pushed", order{Op: "e.auto", Object: "e"})
			e, err := prims.OpenEvent(a, "e", autoEvent)
			require.NoError(t, err)
			x := sequencerActor(t, a, "waits")
			id := x.queues(t, a, e.Offset(), eventWait)
			eventVictim(t, a, "SHMSYNC_CRASHPOINT", point, eventSet)
			x.ok(t, id)
			require.False(t, e.IsSet())
			eventually(t, "the token is accounted for", e.String, func() bool { return e.Unseen()+e.Spare() == 0 })
			e.Set()
			x.must(t, eventWait)
			stopped.proc.Kill(t)
			alone(t, a, 2)
			require.False(t, e.IsSet())
			sound(t, a)
		})
	}
}

// A reaper reads an auto-reset Event before the first record is on the list. It leaves the Event alone,
// although others use it by the time the reaper would take the queue lock.
func TestEventReaperWithoutBase(t *testing.T) {
	a := newArena(t, nil)
	eventVictim(t, a, "SHMSYNC_CRASHPOINT_STOP", "arena.slotrecord.claimed", order{Op: "e.auto", Object: "e"})
	o, err := objectNamed(a, "e")
	require.NoError(t, err)
	repair := prims.BeginRepairOfEvent(a, o)
	e, err := prims.OpenEvent(a, "e", autoEvent)
	require.NoError(t, err)
	x := sequencerActor(t, a, "waits")
	id := x.queues(t, a, e.Offset(), eventWait)
	repair()
	e.Set()
	require.False(t, e.TryWait(), "the wait that is queued comes first")
	x.ok(t, id)
}

// A peer damages the list of slot records, or makes it shorter. A process that knows the records still takes
// back the token that a participant was handed and has not acked when it dies.
func TestEventRemembersItsShares(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, a *arena.Arena, o arenakernel.Object) (undo func()){
		"damaged": damageRecords, "shorter": hideLatestRecord,
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			e, err := prims.OpenEvent(a, "e", autoEvent)
			require.NoError(t, err)
			victim := sequencerActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT_STOP=monitor.await.resolved"))
			victim.queues(t, a, e.Offset(), eventWait)
			e.Set()
			victim.proc.AwaitStop(t)
			require.EqualValues(t, 1, e.Unseen())
			got := make(chan error, 1)
			go func() { got <- e.WaitContext(t.Context()) }()
			eventually(t, "it waits", e.String, func() bool { return prims.Queued(a, e.Offset()) == 1 })
			undo := change(t, a, e.Object())
			victim.proc.Kill(t)
			require.NoError(t, <-got)
			require.False(t, e.IsSet())
			undo()
			sound(t, a)
		})
	}
}

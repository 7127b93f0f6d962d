//go:build linux

package prims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// TestEventSize: the size of an Event does not depend on the number of participants that its arena can have.
// The exception is the arena's open bits of the object, one for each slot. A participant that uses an
// auto-reset Event adds 128 bytes, unless an earlier participant in the same slot has added them.
func TestEventSize(t *testing.T) {
	for mode, record := range map[prims.EventMode]uint64{prims.EventManualReset: 0, prims.EventAutoReset: 128, prims.EventBidirectional: 0} {
		requireSizes(t, record, func(a *arena.Arena) (sized, error) { return prims.OpenEvent(a, "", &prims.EventOptions{Mode: mode}) })
	}
	a := newArena(t, &arena.Options{Size: 16 << 20, Counted: true})
	e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
	require.NoError(t, err)
	require.EqualValues(t, 128, bodySize(t, a, e.Offset()), "the counters are in the body")
	one := a.Stats().SlotRecords
	for range 2 {
		x := sequencerActor(t, a, "other")
		id := x.queues(t, a, e.Offset(), eventWait)
		e.Set()
		x.ok(t, id)
		x.proc.Kill(t)
		alone(t, a, 1)
		require.Equal(t, one+1, a.Stats().SlotRecords, "the next participant of a slot inherits the record")
		require.False(t, e.IsSet())
	}
	sound(t, a)
}

// TestEventModesOfOneLength: Events of all modes have bodies of the same length, in an arena that is not Counted. An
// open still finds the mode, after Sets and Resets, too.
func TestEventModesOfOneLength(t *testing.T) {
	a := newArena(t, nil)
	for _, mode := range []prims.EventMode{prims.EventManualReset, prims.EventAutoReset, prims.EventBidirectional} {
		for _, set := range []bool{false, true} {
			e, err := prims.OpenEvent(a, "", &prims.EventOptions{Mode: mode, InitiallySet: set, Spin: time.Hour})
			require.NoError(t, err)
			for range 9 {
				e.Set()
				e.Reset()
			}
			again, err := prims.EventAt(a, e.Offset())
			require.NoError(t, err)
			require.Equal(t, mode, again.State().Mode)
			require.Equal(t, e.Spin(), again.Spin())
		}
	}
}

// TestEventRecordWithoutRoom: if there is no room for the share of this process, the open fails and
// leaves nothing behind.
func TestEventRecordWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	auto := &prims.EventOptions{Mode: prims.EventAutoReset}
	named, err := prims.OpenEvent(a, "named", auto)
	require.NoError(t, err)
	require.NoError(t, named.Close())
	var blocks []arena.Offset
	for {
		off, err := a.Alloc(256, 0)
		if err != nil {
			break
		}
		blocks = append(blocks, off)
	}
	fill(t, a)
	a.Free(blocks[len(blocks)-1]) // room for an Event
	before := a.Stats()
	_, err = prims.OpenEvent(a, "", auto)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.Equal(t, before, a.Stats(), "the anonymous object is deleted")
	named, err = prims.OpenEvent(a, "named", auto)
	require.NoError(t, err, "the slot has its record")
	named.Set()
	require.True(t, named.TryWait())
}

// TestEventOutlivesItsFirstParticipant: a participant dies while it waits together with others, and another
// participant gets its slot. The others still get their tokens.
func TestEventOutlivesItsFirstParticipant(t *testing.T) {
	a := newArena(t, nil)
	first := sequencerActor(t, a, "first")
	first.must(t, order{Op: "e.auto", Object: "e"})
	e, err := prims.OpenEvent(a, "e", nil)
	require.NoError(t, err)
	first.queues(t, a, e.Offset(), eventWait)
	x := sequencerActor(t, a, "waits")
	ids := []int{x.queues(t, a, e.Offset(), eventWait), x.queues(t, a, e.Offset(), eventWait)}
	first.proc.Kill(t)
	alone(t, a, 2)
	require.EqualValues(t, 2, e.Counted(), "the waits of the dead do not count")
	later := sequencerActor(t, a, "has the slot next")
	ids = append(ids, later.queues(t, a, e.Offset(), eventWait))
	for i := range ids {
		e.Set()
		eventually(t, "one is served", e.String, func() bool { return prims.Queued(a, e.Offset()) == 2-i })
		require.False(t, e.IsSet())
	}
	x.ok(t, ids[0])
	x.ok(t, ids[1])
	later.ok(t, ids[2])
	eventually(t, "all is counted off", e.String, func() bool { return e.Counted() == 0 })
	sound(t, a)
}

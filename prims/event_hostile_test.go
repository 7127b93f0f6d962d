//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// A peer changes the name in the share of a participant that waits. A token that came back from the dead ends one of
// its waits, not all.
func TestEventSpareEndsOneWait(t *testing.T) {
	a := newArena(t, nil)
	e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
	require.NoError(t, err)
	x := sequencerActor(t, a, "waits")
	first := x.queues(t, a, e.Offset(), eventWait)
	second := x.queues(t, a, e.Offset(), eventWait)
	x.queues(t, a, e.Offset(), eventWait)
	was := e.Rename(2, 12345)
	e.SetSpare(1)
	x.ok(t, first)
	eventually(t, "the token is used up", e.String, func() bool { return e.Spare() == 0 })
	require.Equal(t, 2, prims.Queued(a, e.Offset()))
	e.Rename(2, was)
	e.Set()
	x.ok(t, second)
	require.Equal(t, 1, prims.Queued(a, e.Offset()))
}

// A peer damages the list of records before this process has seen the record of a participant that waits. The token is
// handed out by a process that can record it, so none is lost when the list is whole again.
func TestEventTokenForAShareThatIsNotFound(t *testing.T) {
	a := newArena(t, nil)
	e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
	require.NoError(t, err)
	x := sequencerActor(t, a, "waits")
	id := x.queues(t, a, e.Offset(), eventWait)
	undo := damageRecords(t, a, e.Object())
	e.Set()
	x.ok(t, id)
	undo()
	require.False(t, e.IsSet())
	eventually(t, "the token is accounted for", e.String, func() bool { return e.Unseen()+e.Spare() == 0 && prims.Queued(a, e.Offset()) == 0 })
	require.Zero(t, e.Ahead())
	sound(t, a)
}

// The word that says that an Event is auto-reset has to go with its size.
func TestEventModeGoesWithTheSize(t *testing.T) {
	for what, c := range map[string]struct {
		counted bool
		mode    prims.EventMode
		word    uint32
	}{
		"manual, marked as auto":    {true, prims.EventManualReset, 1},
		"auto, marked as manual":    {true, prims.EventAutoReset, 0},
		"manual, an unknown mark":   {false, prims.EventManualReset, 7},
		"an unknown bidirectional":  {false, prims.EventBidirectional, 2},
		"auto, with an unknown bit": {false, prims.EventAutoReset, 3},
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, &arena.Options{Size: 4 << 20, Counted: c.counted})
			e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: c.mode})
			require.NoError(t, err)
			off := e.Offset()
			mark := arena.At[[6]uint32](a, e.Object().Body)
			require.NoError(t, e.Close())
			mark[5] = c.word
			_, err = prims.EventAt(a, off)
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
			_, err = prims.OpenEvent(a, "e", nil)
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
		})
	}
}

// An open that asks for another mode makes no record, so a full arena does not matter.
func TestEventOfAnotherModeGetsNoRecord(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	x := sequencerActor(t, a, "makes it")
	x.must(t, order{Op: "e.auto", Object: "e"})
	for {
		if _, err := a.Alloc(256, 0); err != nil {
			break
		}
	}
	before := a.Stats()
	_, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventBidirectional})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.Equal(t, before, a.Stats())
	_, err = prims.OpenEvent(a, "e", nil)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
}

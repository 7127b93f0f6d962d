//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// TestEventShareIsOverwritten: a peer overwrites the name, or the share, in the slot record of a participant that
// waits. No call crashes or loops, and a Set still ends a wait.
func TestEventShareIsOverwritten(t *testing.T) {
	for what, change := range map[string]func(e *prims.Event){
		"another name":   func(e *prims.Event) { e.Rename(2, 12345) },
		"no waits":       func(e *prims.Event) { e.SetCounted(2, 0) },
		"too many waits": func(e *prims.Event) { e.SetCounted(2, 1<<32-1) },
		"another end":    func(e *prims.Event) { e.SetCounted(2, 1<<64-1) },
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
			require.NoError(t, err)
			x := sequencerActor(t, a, "waits")
			first, second := x.queues(t, a, e.Offset(), eventWait), x.queues(t, a, e.Offset(), eventWait)
			change(e)
			e.Set()
			eventually(t, "one goes on", e.String, func() bool { return prims.Queued(a, e.Offset()) == 1 })
			e.Reset()
			e.TryWait()
			for prims.Queued(a, e.Offset()) > 0 {
				e.Set()
			}
			x.ok(t, first)
			x.ok(t, second)
			require.NotPanics(t, func() { _ = e.State() })
		})
	}
}

// TestEventStateIsOverwritten: a peer writes any value into the word. No call crashes or loops.
func TestEventStateIsOverwritten(t *testing.T) {
	a := newArena(t, nil)
	e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
	require.NoError(t, err)
	other, err := prims.OpenEvent(a, "e", nil)
	require.NoError(t, err)
	for i, s := range []uint64{0, 1<<64 - 1, 1 << 63, 1 << 32, 1<<53 - 1, 1 << 33, 1<<53 | 1<<33, 5<<53 | 1<<32} {
		p := other.WaitAsync()
		e.SetState(s)
		e.Set()
		_, _, _, _ = e.IsSet(), e.TryWait(), e.Reset(), e.State()
		e.SetState(1 << 33) // one token
		other.LookAgain()
		require.NoError(t, p.Wait(), "word %d", i)
		e.SetCounted(1, 0)
	}
}

// TestEventListOfSharesIsDamaged: a peer damages the list of slot records before this process has read the record of a
// participant that waits. A Set still ends the wait of that participant. Waits that this process begins fail, because
// they cannot find all shares.
func TestEventListOfSharesIsDamaged(t *testing.T) {
	a := newArena(t, nil)
	e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
	require.NoError(t, err)
	x := sequencerActor(t, a, "waits")
	id := x.queues(t, a, e.Offset(), eventWait)
	undo := damageRecords(t, a, e.Object())
	e.Set()
	x.ok(t, id)
	require.ErrorIs(t, e.WaitContext(t.Context()), shmsync.ErrCorrupt)
	require.ErrorIs(t, e.WaitAsync().Wait(), shmsync.ErrCorrupt)
	_, err = prims.WaitAny(e)
	require.ErrorIs(t, err, shmsync.ErrCorrupt)
	undo()
	require.False(t, e.IsSet())
	eventually(t, "all is counted off", e.String, func() bool { return e.Counted() == 0 })
	id = x.queues(t, a, e.Offset(), eventWait)
	e.Set()
	x.ok(t, id)
	sound(t, a)
}

// TestEventModeIsOverwritten: if a peer has overwritten the mode of an Event with an unknown value, an open fails.
func TestEventModeIsOverwritten(t *testing.T) {
	for what, c := range map[string]struct {
		mode prims.EventMode
		word uint32
	}{
		"manual, an unknown mark":   {prims.EventManualReset, 7},
		"an unknown bidirectional":  {prims.EventBidirectional, 2},
		"auto, with an unknown bit": {prims.EventAutoReset, 3},
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
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

// TestEventOfAnotherModeGetsNoRecord: an open that asks for another mode allocates no slot record,
// so it returns the same error in a full arena.
func TestEventOfAnotherModeGetsNoRecord(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	x := sequencerActor(t, a, "makes it")
	x.must(t, order{Op: "e.auto", Object: "e"})
	fill(t, a)
	before := a.Stats()
	_, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventBidirectional})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.Equal(t, before, a.Stats())
	_, err = prims.OpenEvent(a, "e", nil)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
}

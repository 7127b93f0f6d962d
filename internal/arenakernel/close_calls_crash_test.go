//go:build crashpoint && linux

package arenakernel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// TestCloseWaitsForCallsInAStep: a goroutine is in the middle of a call that writes with the ID of
// this process, and another goroutine closes the arena. Close must not free the slot before that
// call is over. Otherwise the call could write with the ID of a participant that has taken the slot
// since. Calls that begin after Close has begun are refused.
func TestCloseWaitsForCallsInAStep(t *testing.T) {
	before := func(a *Arena) Object { return Object{} }
	opened := func(a *Arena) Object {
		o, _, _ := a.OpenObject(spec("x"))
		return o
	}
	created := func(a *Arena) Object {
		o := opened(a)
		a.CloseObject(o)
		return o
	}
	for point, c := range map[string]struct {
		before func(*Arena) Object
		call   func(a *Arena, o Object) error
	}{
		"arena.object.bit_set":       {created, func(a *Arena, o Object) error { _, _, err := a.OpenObject(spec("x")); return err }},
		"arena.object.entered":       {created, func(a *Arena, o Object) error { _, _, err := a.OpenObject(spec("x")); return err }},
		"arena.object.before_place":  {before, func(a *Arena, o Object) error { _, _, err := a.OpenObject(spec("x")); return err }},
		"arena.object.before_commit": {before, func(a *Arena, o Object) error { _, _, err := a.OpenObject(spec("x")); return err }},
		"arena.delete.marked":        {created, func(a *Arena, o Object) error { return a.Delete("x") }},
		"arena.delete.freeing":       {created, func(a *Arena, o Object) error { return a.DeleteObject(o) }},
		"arena.slotrecord.claimed":   {opened, func(a *Arena, o Object) error { _, err := a.SlotRecord(o, 128); return err }},
		"arena.alloc.before_publish": {before, func(a *Arena, o Object) error { _, err := a.Alloc(64, 0); return err }},
		"arena.free.before_clear":    {before, func(a *Arena, o Object) error { off, err := a.Alloc(64, 0); a.Free(off); return err }},
	} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 2)
			a, err := Open(ta.name, &ta.opts)
			require.NoError(t, err)
			o := c.before(a)
			arrived, goOn := make(chan struct{}), make(chan struct{})
			crashpoint.ArmFunc(point, 1, func() {
				close(arrived)
				<-goOn
			})
			defer crashpoint.Disarm()
			called, closed := make(chan error, 1), make(chan error, 1)
			go func() { called <- c.call(a, o) }()
			select {
			case <-arrived:
			case err := <-called:
				require.FailNow(t, "the call did not pass the point", "%v", err)
			}
			go func() { closed <- a.Close() }()
			deadline := time.Now().Add(bound())
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for ; a.calls.TryRLock(); <-tick.C { // until Close waits
				a.calls.RUnlock()
				select {
				case err := <-closed:
					require.FailNow(t, "Close returned while the call was in progress", "Close: %v", err)
				default:
					require.True(t, time.Now().Before(deadline), "%s", dumpWords(ta.path()))
				}
			}
			require.True(t, a.isCurrent(a.self), "the slot was given up: %v", a.slotState(a.mySlot))
			_, err = a.Alloc(64, 0)
			require.ErrorIs(t, err, shmsync.ErrClosed)
			_, _, err = a.OpenObject(spec("y"))
			require.ErrorIs(t, err, shmsync.ErrClosed)
			require.ErrorIs(t, a.Delete("x"), shmsync.ErrClosed)
			close(goOn)
			require.NoError(t, <-called)
			require.NoError(t, <-closed)
			b, err := Open(ta.name, &ta.opts)
			require.NoError(t, err)
			require.NoError(t, b.Check())
			require.Zero(t, b.Stats().Claimed)
			require.NoError(t, b.Close())
		})
	}
}

// TestCloseOfAnOpeningWaitsForItsOwnCalls: when a process closes one of two openings, Close waits
// only for the calls of that opening.
func TestCloseOfAnOpeningWaitsForItsOwnCalls(t *testing.T) {
	ta := newTestArena(t, 2)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	b, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.NoError(t, a.BeginCall("test"))
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.BeginCall("test"), shmsync.ErrClosed)
	require.NoError(t, a.BeginCall("test"), "calls may be nested")
	a.EndCall()
	a.EndCall()
	require.NoError(t, a.Close())
}

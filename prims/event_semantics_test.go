//go:build linux

package prims_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

var (
	eventSet     = order{Op: "e.set", Object: "e"}
	eventReset   = order{Op: "e.reset", Object: "e"}
	eventIsSet   = order{Op: "e.isset", Object: "e"}
	eventWait    = order{Op: "e.wait", Object: "e"}
	eventTryWait = order{Op: "e.try", Object: "e"}
)

// The tests of the system that was the model for the Event that is reset by hand, with their
// names, each between processes.
func TestEventCatalogue(t *testing.T) {
	sequencerTests(t, nil, map[string]func(*testing.T, *sequencerGroup){
		"initiallyUnset": func(t *testing.T, x *sequencerGroup) {
			require.False(t, x.waiter.must(t, eventIsSet).OK)
			require.False(t, x.waiter.must(t, eventTryWait).OK)
			require.Equal(t, "event e: manual-reset, not set, waiting false", x.e.String())
		},
		"isSetAfterSet": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, eventSet)
			require.True(t, x.waiter.must(t, eventIsSet).OK)
			require.True(t, x.waiter.must(t, eventTryWait).OK)
			require.True(t, x.waiter.must(t, eventIsSet).OK, "a wait does not take it")
		},
		"isUnsetAfterReset": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, eventSet)
			x.counter.must(t, eventReset)
			require.False(t, x.waiter.must(t, eventIsSet).OK)
		},
		"setIdempotent": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, eventSet)
			x.waiter.must(t, eventSet)
			x.counter.must(t, eventReset)
			require.False(t, x.waiter.must(t, eventIsSet).OK)
		},
		"resetIdempotent": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, eventReset)
			x.waiter.must(t, eventReset)
			x.counter.must(t, eventSet)
			require.True(t, x.waiter.must(t, eventIsSet).OK)
		},
		"waitAlreadySet": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, eventSet)
			x.waiter.must(t, eventWait)
			x.waiter.must(t, order{Op: "e.wait.ctx", Object: "e", Done: true})
		},
		"asyncWaitAlreadySet": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, eventSet)
			x.waiter.ok(t, x.waiter.ended(x.waiter.must(t, order{Op: "e.async", Object: "e"}).ID))
		},
		"waitBlockingSuspends": func(t *testing.T, x *sequencerGroup) {
			id := x.queued(t, "e.wait", 0)
			x.counter.must(t, eventReset)
			x.still(t, x.e.Offset(), 1)
			x.counter.must(t, eventSet)
			x.waiter.ok(t, id)
		},
		"waitSuspends": func(t *testing.T, x *sequencerGroup) {
			id := x.waiter.ended(x.queued(t, "e.async", 0))
			x.counter.must(t, eventSet)
			x.waiter.ok(t, id)
		},
		"setWakesAll": func(t *testing.T, x *sequencerGroup) {
			var ids []int
			for range 4 {
				ids = append(ids, x.queued(t, "e.wait", 0))
			}
			x.counter.must(t, eventSet)
			for _, id := range ids {
				x.waiter.ok(t, id)
			}
		},
		"setResetCycle": func(t *testing.T, x *sequencerGroup) {
			for range 3 {
				id := x.queued(t, "e.wait", 0)
				x.counter.must(t, eventSet)
				x.waiter.ok(t, id)
				x.counter.must(t, eventReset)
			}
		},
		"cancel": func(t *testing.T, x *sequencerGroup) {
			async, ctx, stays := x.queued(t, "e.async", 0), x.queued(t, "e.wait.ctx", 0), x.queued(t, "e.wait", 0)
			require.True(t, x.waiter.must(t, order{Op: "pending.cancel", N: async}).OK)
			x.waiter.isCanceled(t, x.waiter.ended(async))
			x.waiter.must(t, order{Op: "cancel", N: ctx})
			require.Equal(t, []string{"ctx-canceled"}, x.waiter.wait(t, ctx).Is)
			require.Equal(t, []string{"ctx-deadline"}, x.waiter.do(t, order{Op: "e.wait.ctx", Object: "e", Limit: time.Millisecond}).Is)
			x.counter.must(t, eventSet)
			x.waiter.ok(t, stays)
		},
		"pulse": func(t *testing.T, x *sequencerGroup) {
			// A set followed at once by a reset ends all waits that had begun.
			for range 50 {
				var ids []int
				for i := range 3 {
					ids = append(ids, x.queued(t, []string{"e.wait", "e.wait.ctx", "e.async"}[i], 0))
				}
				x.e.Set()
				x.e.Reset()
				for i, id := range ids {
					if i == 2 {
						id = x.waiter.ended(id)
					}
					x.waiter.ok(t, id)
				}
				x.still(t, x.e.Offset(), 0)
				require.False(t, x.e.IsSet())
			}
		},
		"misuse": func(t *testing.T, x *sequencerGroup) {
			require.Equal(t, "shmsync: WaitReset of event e, which is not bidirectional", x.waiter.do(t, order{Op: "e.wait.reset", Object: "e"}).Panic)
			require.PanicsWithValue(t, "shmsync: WaitResetAsync of event e, which is not bidirectional", func() { x.e.WaitResetAsync() })
			require.PanicsWithValue(t, `shmsync: OpenEvent "f": there is no mode 4`, func() {
				prims.OpenEvent(x.a, "f", &prims.EventOptions{Mode: prims.EventBidirectional + 1})
			})
		},
	})
}

// Waits in either direction.
func TestEventBidirectional(t *testing.T) {
	sequencerTests(t, &prims.EventOptions{Mode: prims.EventBidirectional}, map[string]func(*testing.T, *sequencerGroup){
		"both directions": func(t *testing.T, x *sequencerGroup) {
			x.waiter.must(t, order{Op: "e.wait.reset", Object: "e"}) // it is
			for range 5 {
				id := x.queued(t, "e.wait", 0)
				x.counter.must(t, eventReset) // no change
				x.still(t, x.e.Offset(), 1)
				x.counter.must(t, eventSet)
				x.waiter.ok(t, id)
				x.waiter.must(t, eventWait)
				id, async := x.queued(t, "e.wait.reset", 0), x.queued(t, "e.async.reset", 0)
				x.counter.must(t, eventSet)
				x.still(t, x.e.Offset(), 2)
				x.counter.must(t, eventReset)
				x.waiter.ok(t, id)
				x.waiter.ok(t, x.waiter.ended(async))
			}
		},
		"pulse of a reset": func(t *testing.T, x *sequencerGroup) {
			x.e.Set()
			id := x.queued(t, "e.wait.reset", 0)
			x.e.Reset()
			x.e.Set()
			x.waiter.ok(t, id)
		},
	})
}

// Each set ends one wait, in order. A set without a waiter is kept, once.
func TestEventAutoReset(t *testing.T) {
	sequencerTests(t, &prims.EventOptions{Mode: prims.EventAutoReset}, map[string]func(*testing.T, *sequencerGroup){
		"setsCollapse": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, order{Op: "e.set", Object: "e", N: 5})
			require.True(t, x.waiter.must(t, eventIsSet).OK)
			x.waiter.must(t, eventWait)
			require.False(t, x.waiter.must(t, eventIsSet).OK)
			require.False(t, x.waiter.must(t, eventTryWait).OK)
		},
		"resetTakesBack": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, eventSet)
			x.counter.must(t, eventReset)
			require.False(t, x.waiter.must(t, eventTryWait).OK)
		},
		"oneAtATimeInOrder": func(t *testing.T, x *sequencerGroup) {
			var ids []int
			for i := range 12 {
				ids = append(ids, x.queued(t, []string{"e.wait", "e.wait.ctx", "e.async"}[i%3], 0))
			}
			for i, id := range ids {
				x.counter.must(t, eventSet)
				x.still(t, x.e.Offset(), 11-i)
				if i%3 == 2 {
					id = x.waiter.ended(id)
				}
				x.waiter.ok(t, id)
				require.False(t, x.e.IsSet(), "it was handed over")
			}
			require.Zero(t, x.e.Unseen())
		},
		"noneIsPassedBy": func(t *testing.T, x *sequencerGroup) {
			first, second := x.queued(t, "e.wait", 0), x.queued(t, "e.wait", 0)
			x.counter.must(t, eventSet)
			require.False(t, x.counter.must(t, eventTryWait).OK)
			x.waiter.ok(t, first)
			x.counter.must(t, eventSet)
			x.waiter.ok(t, second)
		},
		"cancelledIsSkipped": func(t *testing.T, x *sequencerGroup) {
			async, stays := x.queued(t, "e.async", 0), x.queued(t, "e.wait", 0)
			require.True(t, x.waiter.must(t, order{Op: "pending.cancel", N: async}).OK)
			x.counter.must(t, eventSet)
			x.waiter.ok(t, stays)
			require.False(t, x.e.IsSet())
		},
		"deadIsSkipped": func(t *testing.T, x *sequencerGroup) {
			victim := sequencerActor(t, x.a, "victim")
			victim.queues(t, x.a, x.e.Offset(), eventWait)
			stays := x.queued(t, "e.wait", 0)
			victim.proc.Kill(t)
			x.counter.must(t, eventSet)
			x.waiter.ok(t, stays)
			require.False(t, x.e.IsSet())
		},
	})
}

// A token was handed to a process that dies before it has seen it. The token passes to the next
// waiter, or is kept for the next call.
func TestEventTokenOfTheDead(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for _, next := range []bool{true, false} {
		t.Run(fmt.Sprintf("next %v", next), func(t *testing.T) {
			sequencerTests(t, &prims.EventOptions{Mode: prims.EventAutoReset}, map[string]func(*testing.T, *sequencerGroup){
				"": func(t *testing.T, x *sequencerGroup) {
					victim := sequencerActor(t, x.a, "victim", proctest.Env("SHMSYNC_CRASHPOINT=monitor.await.resolved"))
					victim.queues(t, x.a, x.e.Offset(), eventWait)
					id := 0
					if next {
						id = x.queued(t, "e.wait", 0)
					}
					x.counter.must(t, eventSet)
					victim.proc.WaitSignal(t, syscall.SIGKILL)
					if next {
						x.waiter.ok(t, id)
					} else {
						alone(t, x.a, map[bool]int{true: 2, false: 3}[x.waiter == x.counter])
						require.True(t, x.e.IsSet())
						x.waiter.must(t, eventWait)
					}
					require.False(t, x.e.IsSet())
					// The granter accounts for the token after the token's next owner has seen
					// it.
					eventually(t, "the token is accounted for", x.e.String, func() bool { return x.e.Unseen()+x.e.Spare() == 0 })
				},
			})
		})
	}
}

// A reaper dies while it takes back a token: the token is there exactly once.
func TestEventSpareOfTheDead(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	a := newArena(t, nil)
	e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
	require.NoError(t, err)
	died, begun := 0, time.Now()
	for round := 0; died < 2; round++ {
		require.False(t, round >= 60 && time.Since(begun) > timeout(), "the reaper never comes first")
		// If this process reaps first, it dies.
		reaper := sequencerActor(t, a, "reaper", proctest.Env("SHMSYNC_CRASHPOINT=event.spare.taken"))
		reaper.must(t, eventIsSet)
		victim := sequencerActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT=monitor.await.resolved"))
		victim.queues(t, a, e.Offset(), eventWait)
		e.Set()
		victim.proc.WaitSignal(t, syscall.SIGKILL)
		eventually(t, "the token is back", e.String, func() bool { return e.IsSet() })
		require.True(t, e.TryWait())
		require.False(t, e.TryWait(), "round %d", round)
		select {
		case <-reaper.proc.Done():
			died++
		default:
			reaper.proc.Kill(t)
		}
		alone(t, a, 1)
		require.False(t, e.TryWait())
		require.Zero(t, e.Unseen()+e.Spare())
	}
	sound(t, a)
}

// The process that hands another one its first token is stopped, or dies, before it has recorded
// that, and the other goes on. When the other dies, the token does not come back.
func TestEventFirstTokenIsNotedLate(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies %v", dies), func(t *testing.T) {
			a := newArena(t, nil)
			e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
			require.NoError(t, err)
			// A periodic check of the waiter must not hand out the token before the setter does, on a busy machine. But
			// the test needs one after that.
			waiter := sequencerActor(t, a, "waiter", proctest.Env("SHMSYNC_CHECK_EVERY=1s"))
			setter := sequencerActor(t, a, "setter", proctest.Env("SHMSYNC_CRASHPOINT_STOP=monitor.resolve.resolved"))
			id := waiter.queues(t, a, e.Offset(), eventWait)
			set := setter.start(eventSet)
			setter.proc.AwaitStop(t)
			waiter.ok(t, id)
			if dies {
				setter.proc.Kill(t)
			} else {
				setter.proc.Cont(t)
				setter.ok(t, set)
			}
			eventually(t, "it is noted", e.String, func() bool { return !e.State().Waiting && !e.IsSet() && prims.Queued(a, e.Offset()) == 0 })
			require.Zero(t, e.Unseen()+e.Spare())
			waiter.proc.Kill(t)
			if !dies {
				setter.proc.Kill(t)
			}
			alone(t, a, 1)
			require.False(t, e.TryWait(), "a token from nowhere: %v", e)
			sound(t, a)
		})
	}
}

func TestEventOpen(t *testing.T) {
	a := newArena(t, nil)
	e, err := prims.OpenEvent(a, "e", &prims.EventOptions{InitiallySet: true, Spin: -1})
	require.NoError(t, err)
	require.True(t, e.IsSet())
	require.EqualValues(t, -1, e.Spin())
	e.SetSpin(0)
	same, err := prims.OpenEvent(a, "e", nil)
	require.NoError(t, err)
	require.NotSame(t, e, same)
	at, err := prims.EventAt(a, e.Offset())
	require.NoError(t, err)
	require.Equal(t, e.Offset(), at.Offset())
	for _, opts := range []prims.EventOptions{{Mode: prims.EventAutoReset}, {Mode: prims.EventBidirectional}} {
		_, err = prims.OpenEvent(a, "e", &opts)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.ErrorContains(t, err, "manual-reset")
	}
	auto, err := prims.OpenEvent(a, "auto", &prims.EventOptions{Mode: prims.EventAutoReset, InitiallySet: true})
	require.NoError(t, err)
	_, err = prims.OpenEvent(a, "auto", &prims.EventOptions{Mode: prims.EventBidirectional})
	require.ErrorContains(t, err, "it is auto-reset, asked for bidirectional")
	_, err = prims.OpenEvent(a, "auto", &prims.EventOptions{Mode: prims.EventManualReset})
	require.ErrorContains(t, err, "it is auto-reset, asked for manual-reset", "no mode is a wish for none")
	other, err := prims.OpenEvent(a, "auto", nil)
	require.NoError(t, err)
	require.Equal(t, "event auto: auto-reset, set, waiting false", auto.String())
	for _, x := range []*prims.Event{e, auto} {
		require.True(t, x.Reset())
		require.False(t, x.Reset(), "it is not set")
		x.Set()
	}
	require.Equal(t, prims.EventState{Set: true, Mode: prims.EventAutoReset}, auto.State())
	_, err = prims.OpenSequencer(a, "auto", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.NoError(t, auto.Close())
	require.ErrorContains(t, a.Delete("auto"), "open")
	require.NoError(t, other.Close())
	require.ErrorIs(t, auto.Close(), shmsync.ErrClosed)
	require.NoError(t, a.Delete("auto"))
	for _, x := range []*prims.Event{at, e, same} {
		require.NoError(t, x.Close())
	}
	require.NoError(t, a.Delete("e"))
}

// A setter is stopped before it hands the token out: no new caller overtakes the queued waiter, a
// second set does not collapse with the first, and IsSet does not report a token that was handed
// out.
func TestEventSetterStopped(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for name, then := range map[string]func(t *testing.T, e *prims.Event){
		"try": func(t *testing.T, e *prims.Event) { require.False(t, e.TryWait()) },
		"set": func(t *testing.T, e *prims.Event) { e.Set() },
		"reset": func(t *testing.T, e *prims.Event) {
			e.Reset()
			e.Set()
		},
		"isset":   func(t *testing.T, e *prims.Event) { require.False(t, e.IsSet()) },
		"nothing": func(t *testing.T, e *prims.Event) {},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
			require.NoError(t, err)
			here := sequencerActor(t, a, "waiter")
			setter := sequencerActor(t, a, "setter", proctest.Env("SHMSYNC_CRASHPOINT_STOP=event.set.stored"))
			first, second := here.queues(t, a, e.Offset(), eventWait), here.queues(t, a, e.Offset(), eventWait)
			id := setter.start(eventSet)
			setter.proc.AwaitStop(t)
			then(t, e)
			here.ok(t, first)
			if name == "set" || name == "reset" {
				here.ok(t, second)
			}
			setter.proc.Cont(t)
			setter.ok(t, id)
			if name != "set" && name != "reset" {
				require.Equal(t, 1, prims.Queued(a, e.Offset()))
				e.Set()
				here.ok(t, second)
			}
			require.False(t, e.IsSet())
			require.Zero(t, e.Unseen()+e.Spare())
			sound(t, a)
		})
	}
}

// The mode is in the word that Set and Reset change.
func TestEventKeepsItsMode(t *testing.T) {
	a := newArena(t, nil)
	for _, mode := range []prims.EventMode{prims.EventManualReset, prims.EventBidirectional} {
		for _, set := range []bool{false, true} {
			name := fmt.Sprint(mode, set)
			e, err := prims.OpenEvent(a, name, &prims.EventOptions{Mode: mode, InitiallySet: set})
			require.NoError(t, err)
			for range 3 {
				require.Equal(t, prims.EventState{Set: set, Mode: mode}, e.State())
				again, err := prims.OpenEvent(a, name, nil)
				require.NoError(t, err)
				require.Equal(t, prims.EventState{Set: set, Mode: mode}, again.State())
				require.NoError(t, again.Close())
				if set = !set; set {
					e.Set()
				} else {
					require.True(t, e.Reset())
				}
			}
		}
	}
}

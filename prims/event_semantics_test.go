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

// TestEventCatalogue has the tests of silk's FiberEvent, under their original names. Each runs between processes.
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
			require.True(t, x.waiter.must(t, eventIsSet).OK, "TryWait has reset a manual-reset Event")
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
			// A Set that is followed at once by a Reset ends all waits that have begun.
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

// TestEventBidirectional: goroutines wait for the set and for the reset.
func TestEventBidirectional(t *testing.T) {
	sequencerTests(t, &prims.EventOptions{Mode: prims.EventBidirectional}, map[string]func(*testing.T, *sequencerGroup){
		"both directions": func(t *testing.T, x *sequencerGroup) {
			x.waiter.must(t, order{Op: "e.wait.reset", Object: "e"}) // it is not set, so this ends at once
			for range 5 {
				id := x.queued(t, "e.wait", 0)
				x.counter.must(t, eventReset) // the Event is not changed
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

// TestEventAutoReset: each Set ends one wait. If no goroutine waits, a Set leaves one token, and
// further Sets add no token.
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
		"oneAtATime": func(t *testing.T, x *sequencerGroup) {
			var ids []int
			for i := range 12 {
				id := x.queued(t, []string{"e.wait", "e.wait.ctx", "e.async"}[i%3], 0)
				if i%3 == 2 {
					id = x.waiter.ended(id)
				}
				ids = append(ids, id)
			}
			for i := range ids {
				x.counter.must(t, eventSet)
				x.still(t, x.e.Offset(), 11-i)
				require.False(t, x.e.IsSet(), "IsSet reports a token that a wait takes")
			}
			for _, id := range ids {
				x.waiter.ok(t, id)
			}
			require.Zero(t, x.e.Counted())
		},
		"asManyAsSets": func(t *testing.T, x *sequencerGroup) {
			var ids []int
			for range 5 {
				ids = append(ids, x.queued(t, "e.wait", 0))
			}
			x.counter.must(t, order{Op: "e.set", Object: "e", N: 6})
			for _, id := range ids {
				x.waiter.ok(t, id)
			}
			require.True(t, x.counter.must(t, eventTryWait).OK)
			require.False(t, x.counter.must(t, eventTryWait).OK)
		},
		"resetLeavesThoseOfWaits": func(t *testing.T, x *sequencerGroup) {
			victim := sequencerActor(t, x.a, "is stopped")
			id := victim.queues(t, x.a, x.e.Offset(), eventWait)
			victim.proc.Stop(t)
			x.counter.must(t, eventSet)
			require.False(t, x.e.Reset(), "Reset has removed a token that is for a wait")
			x.counter.must(t, eventSet)
			require.True(t, x.e.Reset())
			victim.proc.Cont(t)
			victim.ok(t, id)
			require.False(t, x.e.IsSet())
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
			alone(t, x.a, map[bool]int{true: 2, false: 3}[x.waiter == x.counter])
			require.False(t, x.e.IsSet())
		},
	})
}

// TestEventTokenOfTheDead: a process dies while it waits, when it is woken, or when it has ended its wait. In
// the first two cases the token is there for the next waiter, or for the next call. In the third case the
// process has taken the token, so the token is gone.
func TestEventTokenOfTheDead(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for _, point := range []string{"event.wait.counted", "event.wait.announced", "event.wait.woken", "event.wait.ended", "event.wait.before_pass"} {
		for _, next := range []bool{true, false} {
			if point == "event.wait.before_pass" && !next {
				continue // a wait does not pass a wake on if nobody else waits
			}
			t.Run(fmt.Sprintf("%s, next %v", point, next), func(t *testing.T) {
				a := newArena(t, nil)
				e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
				require.NoError(t, err)
				victim, x := sequencerActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT="+point)), sequencerActor(t, a, "x")
				id := 0
				if next {
					id = x.queues(t, a, e.Offset(), eventWait)
					x.proc.Stop(t) // stop x, so that the victim gets the token
				}
				if point == "event.wait.counted" || point == "event.wait.announced" {
					victim.start(eventWait)
					victim.proc.WaitSignal(t, syscall.SIGKILL)
					e.Set()
				} else {
					victim.queues(t, a, e.Offset(), eventWait)
					if point == "event.wait.before_pass" {
						e.AddToken() // add a token before the victim wakes, so that the victim leaves a token behind
					}
					e.Set()
					victim.proc.WaitSignal(t, syscall.SIGKILL)
				}
				if next {
					x.proc.Cont(t)
				}
				if point == "event.wait.ended" {
					alone(t, a, 2)
					require.False(t, e.IsSet())
					e.Set()
				}
				if next {
					x.ok(t, id)
				} else {
					alone(t, a, 2)
					eventually(t, "the token is there", e.String, e.IsSet)
					x.must(t, eventWait)
				}
				require.False(t, e.IsSet())
				eventually(t, "all is counted off", e.String, func() bool { return e.Counted() == 0 })
				sound(t, a)
			})
		}
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

// TestEventSetterStopped: a process sets the Event and is stopped, or dies, before it wakes a waiter. No new
// caller takes the token before the waiter. A second Set makes another token. IsSet does not report a token
// that a wait will take.
func TestEventSetterStopped(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for name, then := range map[string]func(t *testing.T, e *prims.Event){
		"try":     func(t *testing.T, e *prims.Event) { require.False(t, e.TryWait()) },
		"set":     func(t *testing.T, e *prims.Event) { e.Set() },
		"reset":   func(t *testing.T, e *prims.Event) { require.False(t, e.Reset()) },
		"isset":   func(t *testing.T, e *prims.Event) { require.False(t, e.IsSet()) },
		"nothing": func(t *testing.T, e *prims.Event) {},
	} {
		for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
			t.Run(name+" "+how, func(t *testing.T) {
				a := newArena(t, nil)
				e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
				require.NoError(t, err)
				here := sequencerActor(t, a, "waiter")
				ids := []int{here.queues(t, a, e.Offset(), eventWait), here.queues(t, a, e.Offset(), eventWait)}
				here.proc.Stop(t)
				setter := sequencerActor(t, a, "setter", proctest.Env(how+"=event.set.before_wake"))
				id := setter.start(eventSet)
				setter.proc.AwaitPoint(t, how)
				then(t, e)
				here.proc.Cont(t)
				if name == "set" {
					here.ok(t, ids[0])
					here.ok(t, ids[1])
				} else {
					eventually(t, "one goes on", e.String, func() bool { return prims.Queued(a, e.Offset()) == 1 })
				}
				if how != "SHMSYNC_CRASHPOINT" {
					setter.proc.Cont(t)
					setter.ok(t, id)
				}
				if name != "set" {
					eventually(t, "the other goes on waiting", e.String, func() bool { return prims.Queued(a, e.Offset()) == 1 })
					e.Set()
					here.ok(t, ids[0])
					here.ok(t, ids[1])
				}
				require.False(t, e.IsSet())
				eventually(t, "all is counted off", e.String, func() bool { return e.Counted() == 0 })
				sound(t, a)
			})
		}
	}
}

// TestEventWaitBehindOneThatIsStopped: a Set has made a token for a wait in a process that is stopped. A
// later wait of another process takes that token, without a periodic check.
func TestEventWaitBehindOneThatIsStopped(t *testing.T) {
	for _, op := range []string{"e.wait", "e.wait.ctx", "e.async"} {
		t.Run(op, func(t *testing.T) {
			a := newArena(t, nil)
			e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
			require.NoError(t, err)
			stopped, x := sequencerActor(t, a, "stopped"), sequencerActor(t, a, "x", proctest.Env("SHMSYNC_CHECK_EVERY=1h"))
			id := stopped.queues(t, a, e.Offset(), eventWait)
			stopped.proc.Stop(t)
			e.Set()
			require.False(t, e.TryWait())
			o := order{Op: op, Object: "e"}
			if later := x.start(o); op == "e.async" {
				x.ok(t, later)
				x.ok(t, x.ended(later))
			} else {
				x.ok(t, later)
			}
			require.Zero(t, e.Tokens())
			e.Set()
			stopped.proc.Cont(t)
			stopped.ok(t, id)
		})
	}
}

// TestEventWaitEndsInAStoppedProcess: a process is stopped after it has ended a wait and before it has
// subtracted the wait from its share. The next process that changes the word subtracts the wait first.
func TestEventWaitEndsInAStoppedProcess(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for name, change := range map[string]func(e *prims.Event){
		"set":  func(e *prims.Event) { e.Set() },
		"wait": func(e *prims.Event) { e.WaitAsync().Cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset})
			require.NoError(t, err)
			x := sequencerActor(t, a, "x", proctest.Env("SHMSYNC_CRASHPOINT_STOP=event.wait.ended:1"))
			id := x.queues(t, a, e.Offset(), eventWait)
			e.Set()
			x.proc.AwaitStop(t)
			change(e)
			require.Zero(t, e.Counted())
			x.proc.Cont(t)
			x.ok(t, id)
			require.Zero(t, e.Counted())
		})
	}
}

// TestEventTokenBeforeTheEndOfAWait: if there is a token when a wait is canceled, the wait takes
// the token, even if no process has woken it for that token.
func TestEventTokenBeforeTheEndOfAWait(t *testing.T) {
	e := newEvent(t, &prims.EventOptions{Mode: prims.EventAutoReset})
	p := e.WaitAsync()
	e.AddToken()
	require.False(t, p.Cancel())
	require.NoError(t, p.Wait())
	require.Zero(t, e.Tokens())
	require.Zero(t, e.Counted())
}

// TestEventWaitPassesTheWakeOn: there are two tokens, but only one wait was woken. The wait that
// takes a token wakes the other wait.
func TestEventWaitPassesTheWakeOn(t *testing.T) {
	e := newEvent(t, &prims.EventOptions{Mode: prims.EventAutoReset})
	first, second := e.WaitAsync(), e.WaitAsync()
	e.AddToken()
	e.Set()
	require.NoError(t, first.Wait())
	require.NoError(t, second.Wait())
	require.Zero(t, e.Tokens())
}

// TestEventEndsWithTheVersionOfTheLastEnd: between the ends of two waits of a participant, the word changes 2^32
// times. So both ends find the same version in the word. The second wait must still be subtracted from the share.
func TestEventEndsWithTheVersionOfTheLastEnd(t *testing.T) {
	e := newEvent(t, &prims.EventOptions{Mode: prims.EventAutoReset})
	p := e.WaitAsync()
	e.Set()
	require.NoError(t, p.Wait())
	require.Zero(t, e.Counted())
	p = e.WaitAsync()
	e.SetCounted(1, uint64(e.Version()+1)<<32|1)
	require.True(t, p.Cancel())
	require.Zero(t, e.Counted())
}

// TestEventKeepsItsMode: Set and Reset change the word in which the mode is stored, and leave the mode as it is.
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

//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// eventVictim starts a process that carries out the order o. The environment variable SHMSYNC_CRASHPOINT in how makes
// it die at the crash point, and SHMSYNC_CRASHPOINT_STOP makes it stop there. eventVictim returns when that has
// happened.
func eventVictim(t *testing.T, a *arena.Arena, how, point string, o order) *actor {
	t.Helper()
	victim := sequencerActor(t, a, "victim", proctest.Env(how+"="+point+":1"))
	victim.start(o)
	victim.proc.AwaitPoint(t, how)
	return victim
}

// TestEventCrashOfTheSetter checks that waiters go on if the process that set or reset the Event dies, or stops for
// ever, before it has woken a waiter. Another process reverses the change at once. A wait that begins after the
// reversal does not delay the earlier waits.
func TestEventCrashOfTheSetter(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		for _, set := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s set %v", how, set), func(t *testing.T) {
				a := newArena(t, nil)
				e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventBidirectional, InitiallySet: !set})
				require.NoError(t, err)
				turn, back, wait, async := eventSet, eventReset, eventWait, order{Op: "e.async", Object: "e"}
				if !set {
					turn, back = eventReset, eventSet
					wait, async = order{Op: "e.wait.reset", Object: "e"}, order{Op: "e.async.reset", Object: "e"}
				}
				x, here := sequencerActor(t, a, "waits"), sequencerActor(t, a, "turns it back")
				waits := x.queues(t, a, e.Offset(), wait)
				pending := x.ended(x.queues(t, a, e.Offset(), async))
				victim := eventVictim(t, a, how, "event.turn.before_wake", turn)
				require.Equal(t, set, e.IsSet())
				here.must(t, back)
				later := here.start(wait)
				x.ok(t, waits)
				x.ok(t, pending)
				here.must(t, turn)
				here.ok(t, later)
				if how == "SHMSYNC_CRASHPOINT_STOP" {
					victim.proc.Cont(t)
				}
				sound(t, a)
			})
		}
	}
}

// TestEventCrashOfTheSetterWhileTheWaitRests is like TestEventCrashOfTheSetter, but the wait rests when the victim
// sets the Event: the periodic checks of the waiter's process only compare the word with its earlier value.
func TestEventCrashOfTheSetterWhileTheWaitRests(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			e, err := prims.OpenEvent(a, "e", nil)
			require.NoError(t, err)
			x := sequencerActor(t, a, "waits")
			for range 3 {
				pending := x.ended(x.queues(t, a, e.Offset(), order{Op: "e.async", Object: "e"}))
				x.must(t, order{Op: "e.rests", Object: "e"})
				victim := eventVictim(t, a, how, "event.turn.before_wake", eventSet)
				x.ok(t, pending)
				e.Reset()
				if how == "SHMSYNC_CRASHPOINT_STOP" {
					victim.proc.Cont(t)
				}
			}
			sound(t, a)
		})
	}
}

// TestEventCrashOfAWaiter: a waiter dies, or stops for ever, after it has announced itself. The
// other waiters go on.
func TestEventCrashOfAWaiter(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			e, err := prims.OpenEvent(a, "e", nil)
			require.NoError(t, err)
			x := sequencerActor(t, a, "waits")
			victim := eventVictim(t, a, how, "eventcount.wait.announced", eventWait)
			waits := x.queues(t, a, e.Offset(), eventWait)
			e.Set()
			x.ok(t, waits)
			if how == "SHMSYNC_CRASHPOINT_STOP" {
				victim.proc.Cont(t)
			}
			sound(t, a)
		})
	}
}

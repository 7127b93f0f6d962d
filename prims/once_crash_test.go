//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// comesTo calls f, which makes the actor x begin an order. It returns when the process of x has died or stopped at
// its crash point.
func comesTo(t *testing.T, how string, x *actor, f func()) {
	t.Helper()
	f()
	x.proc.AwaitPoint(t, how)
}

// TestOnceCrashOfReaper checks that a waiter runs its function although a reaper, which has ended the turn of the
// runner, dies or stops before it wakes the waiters.
func TestOnceCrashOfReaper(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			o := newOnce(t, a, "o")
			owner, x := gateActor(t, a, "owner"), gateActor(t, a, "x")
			reaper := gateActor(t, a, "reaper", proctest.Env(how+"=once.reap.left:1"))
			owner.must(t, order{Op: "block"})
			running := owner.start(order{Op: "once.do", Object: "o"})
			eventually(t, "it runs", o.String, func() bool { return o.State().Runner != nil })
			id := gateBlocked(t, a, x, o.Offset(), order{Op: "once.do", Object: "o", Token: 1})
			asleep(t, a, "o")
			comesTo(t, how, reaper, func() { reaper.start(order{Op: "once.reap", Object: "o"}) })
			ans := x.wait(t, id)
			gateSmooth(t, ans)
			require.True(t, ans.OK, "nobody has run it")
			owner.must(t, order{Op: "unblock"})
			gateSmooth(t, owner.wait(t, running)) // the runner has lost its turn
			require.True(t, o.Done())
			sound(t, a)
		})
	}
}

// TestOnceCrashOfAWaiter checks that calls of other processes end although a waiter dies, or stops for ever, during
// its wait.
func TestOnceCrashOfAWaiter(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		for _, point := range []string{"once.wait.announced", "once.wait.woken"} {
			t.Run(fmt.Sprint(how, " ", point), func(t *testing.T) {
				a := newArena(t, nil)
				o := newOnce(t, a, "o")
				runner, x := gateActor(t, a, "runner"), gateActor(t, a, "x")
				victim := gateActor(t, a, "victim", proctest.Env(how+"="+point+":1"))
				runner.must(t, order{Op: "block"})
				running := runner.start(order{Op: "once.do", Object: "o"})
				eventually(t, "it runs", o.String, func() bool { return o.State().Runner != nil })
				if point == "once.wait.woken" {
					gateBlocked(t, a, victim, o.Offset(), order{Op: "once.do", Object: "o", Token: 1})
					asleep(t, a, "o")
				} else {
					comesTo(t, how, victim, func() { victim.start(order{Op: "once.do", Object: "o", Token: 1}) })
				}
				id := gateBlocked(t, a, x, o.Offset(), order{Op: "once.do", Object: "o", Token: 2})
				runner.must(t, order{Op: "unblock"})
				if point == "once.wait.woken" {
					comesTo(t, how, victim, func() {})
				}
				gateSmooth(t, runner.wait(t, running))
				ans := x.wait(t, id)
				gateSmooth(t, ans)
				require.False(t, ans.OK, "it has run twice")
				o.Do(func() { t.Error("it has run again") })
			})
		}
	}
}

// TestOnceStopsBeforeItWakes checks that the periodic checks of waiters find that the function has returned, if the
// runner stops for ever before it has woken the waiters.
func TestOnceStopsBeforeItWakes(t *testing.T) {
	a := newArena(t, nil)
	o := newOnce(t, a, "o")
	victim, x := gateActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT_STOP=once.run.done:1")), gateActor(t, a, "x")
	victim.must(t, order{Op: "block"})
	id := victim.start(order{Op: "once.do", Object: "o"})
	eventually(t, "it runs", o.String, func() bool { return o.State().Runner != nil })
	waits := gateBlocked(t, a, x, o.Offset(), order{Op: "once.do", Object: "o", Token: 1})
	asleep(t, a, "o")
	victim.start(order{Op: "unblock"})
	victim.proc.AwaitStop(t)
	ans := x.wait(t, waits)
	gateSmooth(t, ans)
	require.False(t, ans.OK, "it has run twice")
	o.Do(func() { t.Error("it has run again") })
	victim.proc.Cont(t)
	gateSmooth(t, victim.wait(t, id))
}

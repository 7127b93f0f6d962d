//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// comesToHand makes the process x start the task o, and returns when x has died or stopped in the task.
func comesToHand(t *testing.T, how string, x *hand, o task) {
	t.Helper()
	x.start(o)
	x.proc.AwaitPoint(t, how)
}

// TestFutureCrashOfTheSetter: a process dies, or stops for ever, at each step of Set. The Future is
// still set, and all waits end.
func TestFutureCrashOfTheSetter(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		for _, point := range []string{"future.set.decided", "future.end.before_wake"} {
			t.Run(fmt.Sprint(how, " ", point), func(t *testing.T) {
				a := newArena(t, nil)
				x, here := remoteHand(t, a, "x"), localHand(a)
				victim := remoteHand(t, a, "victim", proctest.Env(how+"="+point+":1"))
				waits := x.blocked(t, task{Op: "wait", Name: "f"})
				sub := x.blocked(t, task{Op: "subscribe", Name: "f"})
				asleep(t, a, "f")
				comesToHand(t, how, victim, task{Op: "set", Name: "f", Errno: 5})
				require.False(t, here.must(t, task{Op: "set", Name: "f", Errno: 6}).OK, "the result was decided before")
				require.True(t, here.must(t, task{Op: "reset", Name: "f"}).OK)
				require.True(t, here.must(t, task{Op: "own", Name: "f"}).OK)
				require.EqualValues(t, 5, x.wait(t, waits).N)
				require.EqualValues(t, 5, x.wait(t, sub).N)
				require.True(t, here.must(t, task{Op: "set", Name: "f", Errno: 7}).OK)
				if how != "SHMSYNC_CRASHPOINT" {
					victim.proc.Cont(t)
				}
				require.EqualValues(t, 7, x.must(t, task{Op: "wait", Name: "f"}).N)
				sound(t, a)
			})
		}
	}
}

// TestFutureCrashOfTheReaper: a reaper records the death of the producer, and then dies or stops
// for ever before it wakes the waiters. All waits still end.
func TestFutureCrashOfTheReaper(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		for _, point := range []string{"future.reap.decided", "future.end.before_wake"} {
			t.Run(fmt.Sprint(how, " ", point), func(t *testing.T) {
				a := newArena(t, nil)
				x, here := remoteHand(t, a, "x"), localHand(a)
				require.True(t, here.must(t, task{Op: "own", Name: "f"}).OK)
				waits := x.blocked(t, task{Op: "wait", Name: "f"})
				asleep(t, a, "f")
				victim := remoteHand(t, a, "victim", proctest.Env(how+"="+point+":1"))
				comesToHand(t, how, victim, task{Op: "abandon", Name: "f"})
				require.Equal(t, []string{"owner-dead"}, here.do(t, task{Op: "wait", Name: "f"}).Is)
				require.Equal(t, []string{"owner-dead"}, x.wait(t, waits).Is)
				require.False(t, here.must(t, task{Op: "set", Name: "f"}).OK)
			})
		}
	}
}

// TestFutureCrashOfAWaiter: a waiter dies, or stops for ever, at each step of its wait. The waits
// of other processes still end.
func TestFutureCrashOfAWaiter(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		a := newArena(t, nil)
		x, here := remoteHand(t, a, "x"), localHand(a)
		victim := remoteHand(t, a, "victim", proctest.Env(how+"=eventcount.wait.announced:1"))
		comesToHand(t, how, victim, task{Op: "wait", Name: "f"})
		waits := x.blocked(t, task{Op: "wait", Name: "f"})
		require.True(t, here.must(t, task{Op: "set", Name: "f", Errno: 5}).OK)
		require.EqualValues(t, 5, x.wait(t, waits).N)
		sound(t, a)
	}
}

// TestFutureStoppedBeforeItPushes: a process that calls Set stops after it has marked the poller node of a waiting
// process as ready, and before it has pushed the node on the ready stack. A periodic check of the waiting process
// still wakes its goroutines.
func TestFutureStoppedBeforeItPushes(t *testing.T) {
	a := newArena(t, nil)
	x := remoteHand(t, a, "x", proctest.Env("SHMSYNC_CHECK_EVERY=1h"))
	sub := x.blocked(t, task{Op: "subscribe", Name: "f"})
	victim := remoteHand(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT_STOP=arena.ready.marked:1"))
	comesToHand(t, "SHMSYNC_CRASHPOINT_STOP", victim, task{Op: "set", Name: "f", Errno: 5})
	x.must(t, task{Op: "look", Name: "f"})
	require.EqualValues(t, 5, x.wait(t, sub).N)
	victim.proc.Cont(t)
}

//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestBarrierCrashOfTheLast: the last party of a phase dies while it completes the phase. A death
// before or during the completion function breaks the phase. If the completion function has
// returned before the death, the phase has ended.
func TestBarrierCrashOfTheLast(t *testing.T) {
	for point, ends := range map[string]bool{
		"barrier.arrive.counted": false, "barrier.complete.taken": false, "barrier.complete.returned": false,
		"counter.commit.recorded": false, // the second commit; it ends the phase
		"counter.commit.named":    true,  // any process carries out a commit that is named
		"counter.commit.begun":    true,
		"barrier.complete.opened": true, "barrier.tell.before_wake": true,
	} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			tr, err := arena.Value[gateTraces](a, "traces")
			require.NoError(t, err)
			b := newBarrier(t, a, "b", 3, func() { t.Error("the completion runs a second time") })
			at := point + ":1"
			switch point {
			case "counter.commit.recorded", "counter.commit.named":
				at = point + ":2" // the first commit is the arrival
			case "counter.commit.begun":
				at = point + ":5" // the arrival changes four words, so the fifth change is one of the second commit
			}
			victim, x := gateActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT="+at)), gateActor(t, a, "x")
			one := gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "b"})
			if point == "barrier.tell.before_wake" {
				asleep(t, a, "b") // a waiter that spins needs no wake
			}
			b.Arrive(1)
			victim.start(order{Op: "barrier.meet", Object: "b"})
			victim.proc.WaitSignal(t, syscall.SIGKILL)
			ans := x.wait(t, one)
			alone(t, a, 2)
			if ends {
				gateSmooth(t, ans)
				require.NoError(t, b.WaitContext(t.Context(), 0))
				require.EqualValues(t, 1, tr.Count[3])
				// The dead process was a party of the next phase, so that phase is broken.
			} else {
				gateRefused(t, ans, "victim")
			}
			gateRefused(t, x.do(t, order{Op: "barrier.meet", Object: "b"}), "victim")
			require.True(t, b.ResetTo(2))
			require.LessOrEqual(t, tr.Count[3], uint64(1))
			sound(t, a)
		})
	}
}

// TestBarrierCrashOfReset: a process dies while it resets a broken Barrier. The phase stays broken, and calls still
// return its error. The next Reset succeeds.
func TestBarrierCrashOfReset(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 3, nil)
	broken := breakBarrier(t, a, b, "victim")
	dying := gateActor(t, a, "dying", proctest.Env("SHMSYNC_CRASHPOINT=barrier.reset.remembered:1"))
	dying.start(order{Op: "barrier.reset", Object: "plain"})
	dying.proc.WaitSignal(t, syscall.SIGKILL)
	alone(t, a, 1)
	err := b.ArriveAndWaitContext(t.Context())
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	require.Equal(t, "victim", identityOf(err).Label)
	require.EqualValues(t, 1, b.State().Lost)
	require.True(t, b.Reset())
	require.Equal(t, prims.BarrierState{Phase: broken + 1, Pending: 2, Expected: 2}, b.State())
	require.ErrorIs(t, b.WaitContext(t.Context(), broken), shmsync.ErrOwnerDead)
	sound(t, a)
}

// TestBarrierCrashOfOne: a party dies during an arrival that is not the last. The arrival has
// either happened or not.
func TestBarrierCrashOfOne(t *testing.T) {
	for point, arrived := range map[string]bool{
		"counter.commit.recorded": false, "counter.commit.named": true, "counter.commit.begun": true, "counter.commit.completed": true,
		"barrier.arrive.counted": true, "eventcount.wait.announced": true,
	} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			b := newBarrier(t, a, "plain", 2, nil)
			victim := gateActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT="+point+":1"))
			victim.start(order{Op: "barrier.meet", Object: "plain"})
			victim.proc.WaitSignal(t, syscall.SIGKILL)
			alone(t, a, 1)
			require.NoError(t, b.State().Err) // the death breaks no phase, because the victim was no registered party
			b.Register(1)                     // carries out the record of the dead process
			want := int64(2)
			if arrived {
				want = 1
			}
			require.Equal(t, want, b.State().Pending)
			b.Arrive(want)
			require.NoError(t, b.WaitContext(t.Context(), 0))
			require.Zero(t, queued(a, b.Offset()))
		})
	}
}

// TestOnceCrashOfTheRunner: the runner of a Once dies at each step. The next call runs its own
// function, unless the Once was done before the death.
func TestOnceCrashOfTheRunner(t *testing.T) {
	for point, done := range map[string]bool{
		"once.run.taken": false, "once.run.returned": false, "once.run.done": true,
	} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			tr, err := arena.Value[gateTraces](a, "traces")
			require.NoError(t, err)
			o := newOnce(t, a, "o")
			x := gateActor(t, a, "x")
			dying := gateActor(t, a, "dying", proctest.Env("SHMSYNC_CRASHPOINT="+point+":1"))
			// x waits before the runner dies, except if the runner dies before it runs the function.
			var id int
			if point == "once.run.taken" {
				dying.start(order{Op: "once.do", Object: "o"})
				dying.proc.WaitSignal(t, syscall.SIGKILL)
				id = x.start(order{Op: "once.do", Object: "o"})
			} else {
				dying.must(t, order{Op: "block"})
				dying.start(order{Op: "once.do", Object: "o"})
				eventually(t, "it runs", o.String, func() bool { return tr.Count[0] == 1 })
				id = gateBlocked(t, a, x, o.Offset(), order{Op: "once.do", Object: "o"})
				// The test waits until x sleeps: a waiter that is awake would go on even without a wake.
				asleep(t, a, "o")
				dying.start(order{Op: "unblock"})
				dying.proc.WaitSignal(t, syscall.SIGKILL)
			}
			ans := x.wait(t, id)
			gateSmooth(t, ans)
			require.Equal(t, !done, ans.OK)
			require.True(t, o.Done())
			o.Do(func() { t.Error("the function runs although the Once is done") })
		})
	}
}

// TestWaitGroupCrash: a process dies at each step of Add, Done and Claim. The counter has exactly the changes that
// happened before the death. The dead process owes the work that it has added or claimed.
func TestWaitGroupCrash(t *testing.T) {
	for _, c := range []struct {
		op, point string
		before    int // how much the victim adds before it dies
		count     int64
		owed      bool
	}{
		// Before the first call of the victim, only the test's process owes work, so the counter is in its sole form. The
		// first commit of the victim converts it to the logged form.
		{"wg.add", "counter.commit.recorded:1", 0, 10, false},
		{"wg.add", "counter.commit.named:1", 0, 10, false},
		{"wg.add", "counter.commit.begun:3", 0, 10, false},
		{"wg.add", "counter.commit.completed:1", 0, 10, false},
		{"wg.add", "counter.commit.recorded:2", 0, 10, false},
		{"wg.add", "counter.commit.named:2", 0, 12, true},
		{"wg.add", "counter.commit.completed:2", 0, 12, true},
		{"wg.add", "counter.add.counted:1", 0, 12, true},
		{"wg.done", "counter.commit.named:1", 0, 10, false},
		{"wg.done", "counter.commit.recorded:2", 0, 10, false},
		{"wg.done", "counter.commit.named:2", 0, 9, false},
		{"wg.done", "counter.done.counted:1", 0, 9, false},
		{"wg.done", "counter.commit.recorded:3", 3, 13, true},
		{"wg.done", "counter.commit.named:3", 3, 12, true},
		{"wg.done", "counter.commit.begun:13", 3, 12, true},
		{"wg.claim", "counter.commit.recorded:2", 0, 10, false},
		{"wg.claim", "counter.commit.named:2", 0, 10, true},
		{"wg.claim", "counter.commit.begun:9", 0, 10, true},
	} {
		t.Run(fmt.Sprint(c.op, " ", c.point, " ", c.before), func(t *testing.T) {
			a := newArena(t, nil)
			g := newWaitGroup(t, a, "g")
			g.Add(10)
			victim := gateActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT="+c.point))
			if c.before > 0 {
				victim.must(t, order{Op: "wg.add", Object: "g", N: c.before})
			}
			victim.start(order{Op: c.op, Object: "g", N: 2})
			victim.proc.WaitSignal(t, syscall.SIGKILL)
			alone(t, a, 1)
			st := g.State()
			require.Equal(t, c.count, st.Count, g)
			require.Equal(t, c.owed, st.Err != nil, g)
			if own := int64(10); c.op == "wg.claim" && c.owed {
				require.Equal(t, own-2, st.Own, g)
			} else {
				require.Equal(t, min(own, c.count), st.Own, g)
			}
			g.Reset()
			g.Add(-int(g.State().Count))
			require.NoError(t, g.WaitContext(t.Context()))
			sound(t, a)
		})
	}
}

// TestWaitGroupStops: a process stops for ever at each step. Other processes go on at once, and the
// count is exact.
func TestWaitGroupStops(t *testing.T) {
	for _, point := range []string{"counter.commit.recorded:1", "counter.commit.named:1", "counter.commit.begun:1", "counter.commit.begun:4",
		"counter.commit.completed:1", "counter.commit.recorded:2", "counter.commit.named:2", "counter.commit.begun:8", "counter.commit.completed:2"} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			g := newWaitGroup(t, a, "g")
			g.Add(10)
			victim, x := gateActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT_STOP="+point)), gateActor(t, a, "x")
			id := victim.start(order{Op: "wg.done", Object: "g"})
			victim.proc.AwaitStop(t)
			before := g.State()
			require.Contains(t, []int64{9, 10}, before.Count)
			for range 5 {
				x.must(t, order{Op: "wg.add", Object: "g", N: 3})
				g.Add(2)
				x.must(t, order{Op: "wg.done", Object: "g"})
				g.Add(-4)
			}
			require.Equal(t, before.Count, g.State().Count)
			waits := gateBlocked(t, a, x, g.Offset(), order{Op: "wg.waitctx", Object: "g"})
			g.Add(-int(before.Count) + 1)
			if before.Count == 10 { // the change of the victim has not taken effect yet
				victim.proc.Cont(t)
				gateSmooth(t, victim.wait(t, id))
			} else {
				g.Done()
			}
			gateSmooth(t, x.wait(t, waits))
			victim.proc.Cont(t)
			require.Equal(t, prims.WaitGroupState{}, g.State())
			sound(t, a)
		})
	}
}

// TestWaitGroupZeroUntold: a process makes the counter 0, and dies or stops before it has woken the waiters. An Add of
// another process first ends the waits, so that no wait misses the zero. Without an Add, the waits end, too.
func TestWaitGroupZeroUntold(t *testing.T) {
	for _, point := range []string{"counter.zero.untold", "counter.zero.told", "counter.zero.before_wake"} {
		for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
			for _, rises := range []bool{false, true} {
				t.Run(fmt.Sprint(point, how, rises), func(t *testing.T) {
					a := newArena(t, nil)
					g := newWaitGroup(t, a, "g")
					g.Add(1)
					victim, x := gateActor(t, a, "victim", proctest.Env(how+"="+point+":1")), gateActor(t, a, "x")
					ids := make([]int, 12)
					for i := range ids {
						ids[i] = gateBlocked(t, a, x, g.Offset(), order{Op: "wg.wait", Object: "g"})
					}
					victim.start(order{Op: "wg.done", Object: "g"})
					victim.proc.AwaitPoint(t, how)
					if rises {
						g.Add(1)
					}
					for _, id := range ids {
						gateSmooth(t, x.wait(t, id))
					}
					require.Zero(t, queued(a, g.Offset()))
				})
			}
		}
	}
}

// TestLatchCrash: a process dies in the middle of a claim. The claim has either happened or not.
func TestLatchCrash(t *testing.T) {
	for point, owed := range map[string]bool{
		"counter.commit.recorded:1": false, "counter.commit.named:1": false, "counter.commit.recorded:2": false, "counter.commit.named:2": true,
		"counter.commit.completed:2": true,
	} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			l := newLatch(t, a, "l", 5)
			victim := gateActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT="+point))
			victim.start(order{Op: "latch.claim", Object: "l", N: 2})
			victim.proc.WaitSignal(t, syscall.SIGKILL)
			alone(t, a, 1)
			l.CountDown(0)
			l.Claim(0)
			require.Equal(t, int64(5), l.State().Count)
			require.Equal(t, owed, l.State().Err != nil)
			l.Claim(5)
			l.ArriveAndWait(5)
		})
	}
}

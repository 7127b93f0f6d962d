//go:build linux && crashpoint

package prims_test

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// condPassing has the crash points of a process that passes a Signal on by its second record. Its first record has
// queued its wait, by a change of four words. So record.complete.begun:5 is the first change of the second record.
var condPassing = []string{
	"cond.wait.woken:1", "record.commit.written:2", "record.commit.named:2", "record.complete.begun:5", "record.complete.begun:6",
	"record.tell.resolved:1", "record.commit.completed:2", "cond.settle.committed:1", "record.wake.before:1",
}

// TestCondDiesPassingOn: a process dies while it passes a signal on to the next waiter. The signal
// reaches exactly one waiter.
func TestCondDiesPassingOn(t *testing.T) {
	for _, point := range condPassing {
		t.Run(point, func(t *testing.T) {
			untilReached(t, point, func() bool { return condDiesPassingOn(t, point) })
		})
	}
}

func condDiesPassingOn(t *testing.T, point string) (died bool) {
	a := newArena(t, nil)
	owner, here := remoteHand(t, a, "owner"), localHand(a)
	successor := remoteHand(t, a, "successor", proctest.Env("SHMSYNC_CRASHPOINT="+point))
	waits := successor.blocked(t, task{Op: "cwaitctx", Name: "c"})
	second := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	third := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	owner.must(t, task{Op: "clock", Name: "c"})
	here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
	owner.proc.Kill(t)
	died = successor.reaches(t, waits, func() bool {
		select {
		case <-successor.proc.Done():
			return true
		default:
			return false
		}
	})
	if died {
		successor.proc.WaitSignal(t, syscall.SIGKILL)
	}
	require.Empty(t, here.wait(t, second).Err)
	alone(t, a, 1)
	require.Equal(t, prims.CondState{Waiting: 1}, condAt(t, a, "c").State())
	here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
	require.Empty(t, here.wait(t, third).Err)
	sound(t, a)
	return died
}

// TestCondStoppedPassingOn: a process is stopped while it passes a Signal on. Other processes go on: a
// later Signal reaches the next waiter. If the stopped process is then killed, its own Signal passes on.
func TestCondStoppedPassingOn(t *testing.T) {
	for _, point := range condPassing {
		t.Run(point, func(t *testing.T) {
			// At the first two points the commit word does not name the record that passes the Signal on, so the
			// Signal has not passed on yet.
			passed := point != "cond.wait.woken:1" && point != "record.commit.written:2"
			untilReached(t, point, func() bool { return condStoppedPassingOn(t, point, passed) })
		})
	}
}

func condStoppedPassingOn(t *testing.T, point string, passed bool) (stopped bool) {
	a := newArena(t, nil)
	owner, here := remoteHand(t, a, "owner"), localHand(a)
	x := remoteHand(t, a, "x", proctest.Env("SHMSYNC_CRASHPOINT_STOP="+point))
	waits := x.blocked(t, task{Op: "cwaitctx", Name: "c"})
	second := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	third := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	owner.must(t, task{Op: "clock", Name: "c"})
	here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
	owner.proc.Kill(t)
	if stopped = x.reaches(t, waits, func() bool { return isStopped(x.proc) }); !stopped {
		passed = true
	}
	if passed {
		require.Empty(t, here.wait(t, second).Err)
		second, third = third, 0
	}
	here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
	require.Empty(t, here.wait(t, second).Err)
	if stopped {
		x.proc.Kill(t)
	}
	if third != 0 {
		require.Empty(t, here.wait(t, third).Err, "the signal of the dead process has passed on")
	}
	alone(t, a, 1)
	require.Equal(t, prims.CondState{}, condAt(t, a, "c").State())
	sound(t, a)
	return stopped
}

// TestCondStoppedAtEachPoint stops a process at each crash point of a Wait, a Signal or a Broadcast.
// Other processes can wait, signal and broadcast meanwhile.
func TestCondStoppedAtEachPoint(t *testing.T) {
	for op, points := range map[string][]string{
		"cwait": {
			"record.wait.prepared:1", "record.commit.written:1", "record.commit.named:1", "record.complete.begun:1", "record.complete.begun:2",
			"record.complete.begun:3", "record.commit.completed:1", "cond.wait.queued:1", "cond.wait.unlocked:1", "record.await.resolved:1",
			"cond.wait.woken:1", "cond.wait.relocked:1", "cond.wait.landed:1",
		},
		"csignal": {
			"record.commit.written:1", "record.commit.named:1", "record.complete.begun:1", "record.complete.begun:2", "record.complete.begun:3",
			"record.complete.begun:4", "record.tell.resolved:1", "record.commit.completed:1", "record.wake.before:1",
		},
		"cbroadcast": {
			"record.commit.written:1", "record.commit.named:1", "record.complete.begun:1", "record.complete.begun:2", "record.complete.begun:5",
			"record.tell.resolved:1", "record.tell.resolved:2", "record.commit.completed:1", "cond.broadcast.committed:1", "record.wake.before:1",
			"record.commit.named:2",
		},
	} {
		for _, point := range points {
			t.Run(op+"/"+point, func(t *testing.T) { condStoppedAt(t, op, point) })
		}
	}
}

func condStoppedAt(t *testing.T, op, point string) {
	a := newArena(t, nil)
	y, here := remoteHand(t, a, "other"), localHand(a)
	local := func(op string) task { return task{Op: op, Name: "c", Lock: "local"} }
	y.must(t, local("csignal"))
	x := remoteHand(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT_STOP="+point))
	c := condAt(t, a, "c")
	var ids []int
	if op == "cwait" {
		x.start(local(op))
		victim := idOf(a, "victim")
		eventually(t, "the victim waits or is stopped", x.dump, func() bool { return c.CarriedOut(victim) || isStopped(x.proc) })
	} else {
		for range 5 {
			ids = append(ids, here.blocked(t, local("cwait")))
		}
		x.start(local(op))
	}
	if !isStopped(x.proc) && op == "cwait" {
		y.must(t, local("csignal"))
	}
	x.proc.AwaitStop(t)
	// The other processes begin two more waits. Broadcasts then wake all waits, except one of the victim.
	ids = append(ids, here.start(local("cwait")))
	third := y.start(local("cwait"))
	condAwake(t, c, here, ids)
	condAwake(t, c, y, []int{third})
	x.proc.Kill(t)
	y.proc.Kill(t)
	alone(t, a, 1)
	eventually(t, "nobody waits", func() string { return words(a) }, func() bool { return c.State() == prims.CondState{} })
	require.NoError(t, c.Close())
	sound(t, a)
}

// condAwake broadcasts until some waits have ended.
func condAwake(t *testing.T, c *prims.Cond, x *hand, ids []int) {
	t.Helper()
	awake := make(chan struct{})
	go func() {
		defer close(awake)
		for _, id := range ids {
			require.Empty(t, x.wait(t, id).Err)
		}
	}()
	for {
		c.Broadcast()
		select {
		case <-awake:
			return
		case <-after(time.Millisecond):
		}
	}
}

// TestCondNodesAfterDeathsOfTellers: a process ends waits of another process, and dies before it has woken the waiting
// goroutines, some of which are parked. The wait nodes of these waits can be used again. Otherwise each such death
// would keep some nodes for as long as the process of the waiters lives.
func TestCondNodesAfterDeathsOfTellers(t *testing.T) {
	const waiters, rounds = 16, 12
	a := newArena(t, nil)
	c, err := prims.OpenCond(a, "c", new(sync.Mutex), &prims.CondOptions{Batch: -1})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	for range rounds {
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				c.L.Lock()
				defer c.L.Unlock()
				c.Wait()
			})
		}
		condWaits(t, c, waiters)
		teller := remoteHand(t, a, "teller", proctest.Env("SHMSYNC_CRASHPOINT=record.wake.before"))
		teller.start(task{Op: "cbroadcast", Name: "c"})
		teller.proc.WaitSignal(t, syscall.SIGKILL)
		wg.Wait()
		alone(t, a, 1)
	}
	// This process may not have given back all nodes of the last round yet.
	st := a.Stats()
	require.LessOrEqual(t, st.Nodes-st.PollerNodes, uint64(2*waiters))
	sound(t, a)
}

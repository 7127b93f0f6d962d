//go:build linux && crashpoint

package prims_test

import (
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestCondDiesPassingOn: a process dies while it passes a signal on to the next waiter. The signal
// reaches exactly one waiter.
func TestCondDiesPassingOn(t *testing.T) {
	for _, point := range []string{"cond.grant.resolved", "cond.pass.resolved", "monitor.resolve.resolved", "monitor.released", "monitor.leave.before_wake"} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			owner, here := remoteHand(t, a, "owner"), localHand(a)
			successor := remoteHand(t, a, "successor", proctest.Env("SHMSYNC_CRASHPOINT="+point+":1"))
			successor.blocked(t, task{Op: "cwaitctx", Name: "c"})
			second := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
			third := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
			owner.must(t, task{Op: "clock", Name: "c"})
			here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
			owner.proc.Kill(t)
			successor.proc.WaitSignal(t, syscall.SIGKILL)
			require.Empty(t, here.wait(t, second).Err)
			alone(t, a, 1)
			require.Equal(t, prims.CondState{Waiting: 1}, condAt(t, a, "c").State())
			here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
			require.Empty(t, here.wait(t, third).Err)
			sound(t, a)
		})
	}
}

// TestCondNodesAfterDeathsOfTellers: a process ends waits of goroutines that wait behind the poller
// of their process, and dies before it has woken them. The wait nodes of these waits can be used
// again. Otherwise each such death would keep some nodes for as long as the waiters' process lives.
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
		teller := remoteHand(t, a, "teller", proctest.Env("SHMSYNC_CRASHPOINT=monitor.leave.before_wake"))
		teller.start(task{Op: "cbroadcast", Name: "c"})
		teller.proc.WaitSignal(t, syscall.SIGKILL)
		wg.Wait()
		alone(t, a, 1)
	}
	// A process may still be about to give back some of the last nodes.
	st := a.Stats()
	require.LessOrEqual(t, st.Nodes-st.PollerNodes, uint64(2*waiters))
	sound(t, a)
}

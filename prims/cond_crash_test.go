//go:build linux && crashpoint

package prims_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// Who passes a signal on dies over it: the signal has passed, once.
func TestCondDiesPassingOn(t *testing.T) {
	for _, point := range []string{"cond.grant.resolved", "cond.pass.resolved", "monitor.resolve.resolved", "monitor.released", "monitor.leave.before_wake"} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			owner, here := remoteHand(t, a, "owner"), localHand(a)
			heir := remoteHand(t, a, "heir", proctest.Env("SHMSYNC_CRASHPOINT="+point+":1"))
			heir.blocked(t, task{Op: "cwaitctx", Name: "c"})
			second := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
			third := here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
			owner.must(t, task{Op: "clock", Name: "c"})
			here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
			owner.proc.Kill(t)
			heir.proc.WaitSignal(t, syscall.SIGKILL)
			require.Empty(t, here.wait(t, second).Err)
			alone(t, a, 1)
			require.Equal(t, prims.CondState{Waiting: 1}, condAt(t, a, "c").State())
			here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
			require.Empty(t, here.wait(t, third).Err)
			sound(t, a)
		})
	}
}

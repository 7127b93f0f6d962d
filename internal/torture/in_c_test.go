//go:build linux

package torture

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/include"
	"github.com/shmsync/shmsync/internal/proctest"
)

// Victims in C work at data only. Those that end by themselves do not die in a rollback.
func TestPlanOfVictimsInC(t *testing.T) {
	for _, only := range []uint64{soundJobs, mustJobs("mutex", "tx"), mustJobs("tx", "rwtx")} {
		inC := 0
		for i := range 1000 {
			v := victimOf(1, i, only)
			if !v.c {
				require.Zero(t, v.step)
				continue
			}
			inC++
			require.NotZero(t, v.jobs)
			require.Zero(t, v.jobs&^(only&dataJobs), v)
			if v.outcome >= outcomeExec {
				require.Zero(t, v.step, v)
			}
		}
		if only&^dataJobs == 0 {
			require.InDelta(t, 500, inC, 60)
		} else {
			require.InDelta(t, 125, inC, 40)
		}
	}
}

func TestSourceInC(t *testing.T) {
	proctest.CheckSourceInC(t, workerSource, include.Header, pageFlags())
}

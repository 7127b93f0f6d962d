//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/subjects"
)

// Once, a thread holds a lock for a long time: a stall. With --rate, the figures show the stall, even if only threads
// of one process share the lock.
func TestOpenLoopSeesAStall(t *testing.T) {
	// On a busy machine, many requests are late even without the stall, so there are several attempts.
	for a := new(attempts); ; {
		m := stalled(t)
		seen := m["p99-ns"] > 0.7*float64(subjects.StallTime) && m["corrected-p99-ns"] > 0.5*float64(subjects.StallTime)
		if seen && m["closed-p99-ns"] < 0.5*m["p99-ns"] {
			return
		}
		require.True(t, a.another(), "%v", m)
	}
}

// stalled measures a lock that is once held for a long time.
func stalled(t *testing.T) map[string]float64 {
	t.Helper()
	code, out, errs := shmbench(t, "lock", "--rate=1000", "--prim=test:stall", "--place=any", "--procs=2", "--cs=0",
		"--time=1500ms", "--warmup=20ms", "--count=1", "--cc=none", "--format=json")
	require.Equal(t, exitOK, code, errs)
	cells := parseDocument(t, out).Cells
	require.Len(t, cells, 1)
	require.Equal(t, "open", cells[0].Scenario)
	require.Equal(t, "1000", cells[0].Params["rate"])
	return cells[0].Reps[0].Metrics
}

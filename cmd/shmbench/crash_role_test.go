//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// Waiters and readers can die: the next waiter gets the lock, and the dead processes leave no traces.
func TestCrashRoles(t *testing.T) {
	code, out, errs := shmbench(t, "crash", "--role=holder,waiter,reader", "--kills=12", "--place=any", "--count=1", "--cc=none",
		"--prim=shmsync:mutex,shmsync:rwmutex,go:flock", "--format=json")
	require.Zero(t, code, errs)
	seen := map[string]int{}
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, bench.StatusOK, c.Status, c.Key)
		require.Equal(t, []float64{12}, c.Values("n"), c.Key)
		require.Positive(t, stats.Median(c.Values("max-ns")), c.Key)
		seen[c.Subject+" "+c.Params["role"]]++
		if c.Params["role"] == "" {
			require.Empty(t, c.Values("passed-p50-ns"), c.Key)
			told := c.Values("told-p50-ns")
			require.Equal(t, c.Subject != "go:flock", len(told) == 1, "%s: a lock of the library tells a survivor before it may use the data", c.Key)
			if len(told) > 0 {
				require.Positive(t, told[0])
				require.LessOrEqual(t, told[0], c.Values("p50-ns")[0], c.Key)
				require.NotEmpty(t, c.Reps[0].Told)
			}
		}
	}
	require.Equal(t, map[string]int{
		"shmsync:mutex ": 1, "shmsync:rwmutex ": 1, "go:flock ": 1,
		"shmsync:mutex waiter": 1, "shmsync:rwmutex waiter": 1, "shmsync:rwmutex reader": 1,
	}, seen)
}

//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/proctest"
)

// The memory of a home cell is on the node that the plan names, or the cell says why it was skipped.
func TestHomeRuns(t *testing.T) {
	proctest.CCompiler(t)
	seen := map[string]bool{}
	for _, c := range measured(t, hasSummary, "home", "--warmup=2ms", "--count=1").Cells {
		if needsCPUs(t, c) || needsPlacement(c) || needsMemory(c) {
			continue
		}
		require.Equal(t, bench.StatusOK, c.Status, "%s: %s", c.Key, c.Reason)
		seen[c.Subject] = true
		p := c.Reps[0].Placement
		require.NotNil(t, p, c.Key)
		if p.Note == "" { // empty: the system reports where pages are
			require.InDelta(t, 100, p.Heeded(), 1, "%s: %v", c.Key, p)
			require.InDelta(t, 100, c.Summary["as-asked-%"].Center, 1, c.Key)
		}
	}
	if len(seen) > 0 { // empty on one CPU, and where memory cannot be placed
		require.Equal(t, map[string]bool{"shmsync:mutex": true, "c:robust": true, "go:one-line": true, "go:two-lines": true}, seen)
	}
}

// A home cell detects a lock that does not exclude others, and a wrong number of round trips.
func TestHomeSeesViolations(t *testing.T) {
	for prim, reason := range map[string]string{"test:open": "counter under the lock", "test:miscount": "round trips were made"} {
		args := []string{"home", "--prim=" + prim, "--home=first", "--time=150ms", "--warmup=2ms", "--count=1", "--format=json", "--cc=none"}
		_, out, _ := shmbench(t, args...)
		if c := parseDocument(t, out).Cells[0]; needsCPUs(t, c) || needsPlacement(c) {
			t.Skipf("needs two CPUs, and memory that can be placed: %s", c.Reason)
		}
		_, errs := violated(t, args...)
		require.Contains(t, errs, reason)
	}
}

func TestHomeUsage(t *testing.T) {
	code, _, errs := shmbench(t, "home", "--home=nowhere", "-n")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "first, second or third")
}

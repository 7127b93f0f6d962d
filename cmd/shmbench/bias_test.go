//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/proctest"
)

// All cells of the bias scenarios run: owners and intruders that share a lock, and fences with one and with several
// busy processes.
func TestBiasRuns(t *testing.T) {
	proctest.CCompiler(t)
	seen := map[string]bool{}
	for _, c := range measured(t, hasSummary, "bias", "--warmup=2ms", "--count=1", "--gap=100us", "--procs=1,2").Cells {
		if c.Status == bench.StatusSkipped {
			require.NotEmpty(t, c.Reason, c.Key)
			continue
		}
		require.Equal(t, bench.StatusOK, c.Status, "%s: %s", c.Key, c.Reason)
		seen[c.Subject] = true
	}
	require.NotEmpty(t, seen)
}

// A cell detects an intruder that gets a lock while it is held, and a fence that fails.
func TestBiasSeesViolations(t *testing.T) {
	open := []string{"bias", "--prim=test:open", "--gap=1us", "--warmup=2ms", "--time=200ms", "--count=1", "--format=json", "--cc=none"}
	_, out, _ := shmbench(t, open...)
	if parseDocument(t, out).Cells[0].Status != bench.StatusSkipped { // with one CPU the cell is skipped
		out, _ = violated(t, open...)
		require.Contains(t, parseDocument(t, out).Cells[0].Reason, "counter under the lock")
	}
	code, out, _ := shmbench(t, "bias", "--prim=test:no-fence", "--procs=1", "--warmup=2ms", "--time=20ms", "--count=1", "--format=json", "--cc=none")
	require.Equal(t, exitCrashed, code)
	require.Contains(t, parseDocument(t, out).Cells[0].Reason, "no fence was made")
}

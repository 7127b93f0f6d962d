//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/report"
)

// Stream cells measure single loads and bandwidth, and find their memory where it should be.
func TestStreamRuns(t *testing.T) {
	complete := func(c report.Cell) bool {
		return c.Status != bench.StatusOK || c.Summary["chase-ns"].Center > 0 && (c.Params["streams"] == "0" || c.Summary["MB/s"].Center > 0)
	}
	for _, c := range measured(t, complete, "stream", "--mib=2", "--warmup=2ms", "--count=1", "--cc=none").Cells {
		if c.Status == bench.StatusSkipped {
			require.NotEmpty(t, c.Reason, c.Key)
			continue
		}
		require.Equal(t, bench.StatusOK, c.Status, "%s: %s", c.Key, c.Reason)
		require.True(t, complete(c), c.Key)
		if c.Reps[0].Placement.Note == "" { // empty: the system reports where pages are
			require.InDelta(t, 100, c.Summary["as-asked-%"].Center, 1, c.Key)
		}
	}
}

// The chain and the streams detect memory that loses what was written.
func TestStreamSeesViolations(t *testing.T) {
	args := []string{"stream", "--prim=test:rotten", "--mib=1", "--streams=1", "--read=50", "--warmup=2ms", "--time=100ms", "--count=1", "--format=json", "--cc=none"}
	_, out, _ := shmbench(t, args...)
	if cells := parseDocument(t, out).Cells; cells[0].Status == bench.StatusSkipped {
		t.Skipf("a stream needs a second CPU: %s", cells[0].Reason)
	}
	out, _ = violated(t, args...)
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, bench.StatusViolation, c.Status)
		require.Regexp(t, "add up|written|came back", c.Reason)
	}
}

func TestStreamUsage(t *testing.T) {
	for _, flag := range []string{"--data=moon", "--duty=0", "--duty=101", "--streams=-1", "--read=101"} {
		code, _, errs := shmbench(t, "stream", flag, "-n")
		require.Equal(t, exitUsage, code, flag)
		require.NotEmpty(t, errs, flag)
	}
}

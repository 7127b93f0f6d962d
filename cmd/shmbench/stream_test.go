//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/report"
)

// Stream cells measure single loads and bandwidth. The memory is on the requested nodes, if the system reports where
// pages are.
func TestStreamRuns(t *testing.T) {
	complete := func(c report.Cell) bool {
		return c.Status != bench.StatusOK || c.Summary["chase-ns"].Center > 0 && (c.Params["streams"] == "0" || c.Summary["MB/s"].Center > 0)
	}
	for _, c := range measured(t, complete, "stream", "--mib=2", "--warmup=2ms", "--count=1", "--cc=none").Cells {
		if needsCPUs(t, c) || needsPlacement(c) || needsMemory(c) {
			continue
		}
		require.Equal(t, bench.StatusOK, c.Status, "%s: %s", c.Key, c.Reason)
		require.True(t, complete(c), c.Key)
		if c.Reps[0].Placement.Note == "" { // empty: the system reports where pages are
			require.InDelta(t, 100, c.Summary["as-asked-%"].Center, 1, c.Key)
		}
	}
}

// A stream cell detects memory that loses what was written, even if the system does not report where pages are.
func TestStreamSeesViolations(t *testing.T) {
	t.Run("mbind", streamSeesViolations)
	t.Run("no mbind", func(t *testing.T) {
		t.Setenv("SHMSYNC_DISABLE", "mbind")
		streamSeesViolations(t)
	})
}

func streamSeesViolations(t *testing.T) {
	args := []string{"stream", "--prim=test:rotten", "--mib=1", "--streams=1", "--read=50", "--warmup=2ms", "--time=100ms", "--count=1", "--format=json", "--cc=none"}
	_, out, _ := shmbench(t, args...)
	if c := parseDocument(t, out).Cells[0]; needsCPUs(t, c) || needsPlacement(c) {
		t.Skipf("needs two CPUs, and memory that can be placed: %s", c.Reason)
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

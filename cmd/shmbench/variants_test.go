//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/report"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestHelperGiven checks that --helper runs the C peers with the given program. If this program does not exist, or
// comes from other sources, shmbench refuses it and measures nothing.
func TestHelperGiven(t *testing.T) {
	proctest.CCompiler(t)
	helper := filepath.Join(t.TempDir(), "peer")
	code, _, errs := shmbench(t, "helper", helper)
	require.Zero(t, code, errs)
	run := func(helper string) (code int, out, errs string) {
		return shmbench(t, "uncontended", "--prim=c:futex", "--time=5ms", "--count=1", "--format=json", "--cc=none", "--helper="+helper)
	}
	code, out, errs := run(helper)
	require.Zero(t, code, errs)
	cells := parseDocument(t, out).Cells
	require.Len(t, cells, 1)
	require.Equal(t, bench.StatusOK, cells[0].Status)

	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, []byte("#!/bin/sh\necho 0123456789abcdef\n"), 0o700))
	for bad, why := range map[string]string{other: "not of this shmbench", "/no/such/peer": "no such file", "/bin/false": "exit status 1"} {
		code, out, errs := run(bad)
		require.Equal(t, exitUsage, code, bad)
		require.Empty(t, out)
		require.Contains(t, errs, why)
	}
	code, _, errs = shmbench(t, "helper", "--cc=none", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "no C compiler")
}

// TestSlowConsumersLag checks that consumers that are slower than the counter fall behind it. If --slow is so long that
// the consumers fall too far behind, shmbench skips the cell.
func TestSlowConsumersLag(t *testing.T) {
	lag := func(slow string, metric func(c report.Cell) bool) []report.Cell {
		return measured(t, metric, "seq", "--prim=shmsync:sequencer,in-process:sync.Cond", "--waiters=4", "--wake=2", "--gap=100us", "--place=any",
			"--slow="+slow, "--warmup=2ms", "--count=1", "--cc=none").Cells
	}
	// On a busy machine the counter may be as slow as the consumer.
	lags := func(c report.Cell) bool {
		behind, late := c.Values("lag-p50"), c.Values("p50-ns")
		return len(behind) != 0 && stats.Median(behind) > 5 && len(late) != 0 && stats.Median(late) > 5*100e3
	}
	for _, c := range lag("2ms", lags) {
		require.Equal(t, bench.StatusOK, c.Status, c.Reason)
		require.Equal(t, "2ms", c.Params["slow"])
		require.True(t, lags(c), "%s: lag %v, %v ns", c.Key, c.Values("lag-p50"), c.Values("p50-ns"))
	}
	for _, c := range lag("1s", func(report.Cell) bool { return true }) {
		require.Equal(t, bench.StatusSkipped, c.Status)
		require.Contains(t, c.Reason, "falls behind")
	}
}

// TestKeysWaitedFor checks that threads find a single common key held more often than one of 4096 keys.
func TestKeysWaitedFor(t *testing.T) {
	proctest.CCompiler(t)
	// On a busy machine, the goroutines may never run at the same time.
	for a := new(attempts); ; {
		waited := keysWaitedFor(t)
		// Only the MultiLock is compared. A running goroutine may take one of the other subjects before a woken goroutine
		// runs.
		if waited["1"]["shmsync:multilock"] > waited["4096"]["shmsync:multilock"] {
			return
		}
		require.True(t, a.another(), "%v", waited)
	}
}

// keysWaitedFor returns how often a thread found its key held, as a fraction from 0 to 1. The result is indexed by the
// number of keys and by the subject.
func keysWaitedFor(t *testing.T) map[string]map[string]float64 {
	t.Helper()
	code, out, errs := shmbench(t, "multi", "--prim=shmsync:multilock,c:robust,go:ofd,in-process:sync.Mutex-each", "--keys=1,4096", "--locks=1", "--skew=uniform", "--cs=5us", "--think=0",
		"--procs=2", "--threads=2", "--place=any", "--time=200ms", "--warmup=2ms", "--count=1", "--format=json")
	require.Zero(t, code, errs)
	cells := parseDocument(t, out).Cells
	require.Len(t, cells, 8)
	waited := map[string]map[string]float64{"1": {}, "4096": {}}
	for _, c := range cells {
		require.NotEmpty(t, c.Values("waited"), c.Key)
		waited[c.Params["keys"]][c.Subject] = stats.Median(c.Values("waited"))
	}
	for _, of := range waited {
		for subject, part := range of {
			require.GreaterOrEqual(t, part, 0.0, subject)
			require.LessOrEqual(t, part, 1.0, subject)
		}
	}
	return waited
}

// Cells of a lock run with the requested spin budgets.
func TestSpinOfALockRuns(t *testing.T) {
	code, out, errs := shmbench(t, "lock", "--prim=shmsync:mutex", "--spin=0,20us", "--procs=2", "--threads=1", "--place=any",
		"--cs=100ns", "--time=10ms", "--warmup=1ms", "--count=1", "--cc=none", "--format=json")
	require.Zero(t, code, errs)
	require.Len(t, parseDocument(t, out).Cells, 2)
}

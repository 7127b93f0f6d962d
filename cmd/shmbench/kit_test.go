//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestKitRuns runs the commands below, with their default subjects and with three threads per process. The cells check
// themselves.
func TestKitRuns(t *testing.T) {
	proctest.CCompiler(t)
	for _, args := range proctest.Sample([][]string{
		{"rw", "--read=50", "--procs=2"},
		{"sem", "--permits=2"},
		{"cond", "--capacity=3"},
		{"event", "--gap=100us"},
		{"seq", "--waiters=40", "--wake=0,3", "--gap=100us"},
		{"seq", "--waiters=40", "--wake=3", "--gap=100us", "--slow=300us"},
		{"multi", "--keys=20", "--locks=3", "--skew=zipf:1.2"},
		{"barrier"},
		{"queue", "--capacity=32", "--batch=5"},
	}, 4) {
		t.Run(args[0], func(t *testing.T) {
			d := measured(t, hasSummary, append(args, "--warmup=2ms", "--count=1", "--threads=3", "--place=any")...)
			seen := map[string]bool{}
			for _, c := range d.Cells {
				require.Equal(t, bench.StatusOK, c.Status, c.Key)
				require.NotEmpty(t, c.Summary, c.Key)
				by, _, _ := strings.Cut(c.Subject, ":")
				seen[by] = true
			}
			require.True(t, seen["in-process"] || seen["c"], "peers: %v", seen)
		})
	}
}

// Each padding cell counts the increments of its threads separately, however near their counters are to each other.
func TestPaddingCells(t *testing.T) {
	d := measured(t, hasSummary, "padding", "--pad=4,64,128", "--threads=2", "--place=any", "--warmup=2ms", "--count=1", "--cc=none")
	require.Len(t, d.Cells, 3)
	for _, c := range d.Cells {
		require.Equal(t, bench.StatusOK, c.Status, c.Key)
		require.Contains(t, c.Summary, "ops/s", c.Key)
	}
}

// TestKitSeesViolations checks that the cells of each command below detect a subject that breaks its promise.
func TestKitSeesViolations(t *testing.T) {
	for _, c := range proctest.Sample([]struct{ command, prim, reason string }{
		{"rw", "open-rw", "a writer got the lock that a reader held"},
		{"sem", "generous", "hold a permit of 1"},
		{"cond", "stutter", "came after its item"},
		{"event", "ajar", "in round"},
		{"seq", "ajar", "increments"},
		{"padding", "lossy-counters", "increments"},
		{"seq --slow=1ms", "ajar", "increments"},
		{"seq --slow=1ms", "hasty", "but waited for"},
		{"multi", "open-keys", "the counters under the keys"},
		{"barrier", "impatient", "party"},
		{"queue", "lossy", "items were put"},
	}, 4) {
		command, more, _ := strings.Cut(c.command, " ")
		t.Run(c.command, func(t *testing.T) {
			args := []string{command, "--prim=test:" + c.prim, "--place=any", "--threads=2", "--time=150ms",
				"--warmup=2ms", "--count=1", "--cs=1us", "--think=0", "--permits=1", "--keys=1", "--locks=1", "--read=50",
				"--capacity=64", "--batch=1", "--waiters=8", "--wake=2", "--gap=200us", "--timeout=2s",
				"--format=json", "--cc=none"}
			out, errs := violated(t, append(args, strings.Fields(more)...)...)
			for _, cell := range parseDocument(t, out).Cells {
				require.Equal(t, bench.StatusViolation, cell.Status, cell.Key)
			}
			require.Contains(t, errs, c.reason)
		})
	}
}

func TestKitUsage(t *testing.T) {
	for _, args := range [][]string{
		{"rw", "--read=101"}, {"sem", "--permits=0"}, {"multi", "--keys=5000"}, {"multi", "--locks=17"}, {"multi", "--skew=bent"},
		{"seq", "--slow=-1us"}, {"lock", "--spin=long"}, {"lock", "--variant=[", "--dry-run"}, {"lock", "--variant=none-such", "--dry-run"},
		{"queue", "--batch=0"}, {"queue", "--capacity=4096"},
		{"lock", "--time=0"}, {"lock", "--time=-1s"}, {"lock", "--count=0"}, {"crash", "--kills=0"}, {"lock", "--warmup=-1s"},
		{"padding", "--pad=6"}, {"padding", "--pad=0"}, {"padding", "--pad=4096"},
	} {
		code, _, errs := shmbench(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs, args)
	}
}

// The key of a cell has the number of a skew in its shortest form: zipf:1.20 becomes zipf:1.2.
func TestSkewsInKeysOfCells(t *testing.T) {
	code, out, errs := shmbench(t, "multi", "-n", "--prim=shmsync:multilock", "--keys=9", "--skew=zipf,zipf:1.20")
	require.Zero(t, code, errs)
	require.Contains(t, out, "/skew=zipf/")
	require.Contains(t, out, "/skew=zipf:1.2/")
}

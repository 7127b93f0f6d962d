//go:build linux

package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/report"
	"github.com/shmsync/shmsync/internal/bench/subjects"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestLibrarySubjects runs every cell of the library. The cells check the counter under the lock, the order of tokens,
// and how many waiters of a crowd succeeded.
func TestLibrarySubjects(t *testing.T) {
	if !proctest.Long() {
		t.Skip("needs SHMSYNC_TEST_LONG=1: TestEveryScenarioRuns measures less")
	}
	ran := map[string]bool{}
	const count = 1 // other tests have several
	for _, args := range [][]string{
		{"uncontended"},
		{"handoff", "--place=cross,same", "--gap=200us"},
		{"lock", "--threads=1,4", "--place=any"},
		{"crash", "--place=any", "--kills=2"},
		{"waiters", "--waiters=300"},
		{"rw", "--read=90", "--threads=3", "--place=any"},
		{"multi", "--keys=20", "--locks=1,3", "--threads=3", "--place=any"},
		{"queue", "--capacity=5", "--batch=1,8", "--threads=3", "--place=any"},
		{"cond", "--capacity=3", "--threads=3", "--place=any"},
		{"barrier", "--threads=3", "--place=any"},
		{"event", "--threads=3", "--place=any", "--gap=200us"},
		{"seq", "--waiters=60", "--wake=0,3", "--gap=200us", "--place=any"},
		{"bias", "--place=any", "--gap=100us", "--procs=1"},
		{"sem", "--permits=3", "--threads=3", "--place=any"},
	} {
		args = append(args, "--prim=shmsync:*", "--warmup=5ms", fmt.Sprint("--count=", count), "--cc=none")
		t.Run(args[0], func(t *testing.T) {
			// On an idle machine, the process has up to 30 threads. On a busy machine it may have more, so there
			// are several attempts. If each waiter had a thread, there would be 300.
			fewThreads := func(c report.Cell) bool { return c.Scenario != "waiters" || c.Summary["threads"].Hi < 150 }
			for _, c := range measured(t, func(c report.Cell) bool { return hasSummary(c) && fewThreads(c) }, args...).Cells {
				if needsCPUs(t, c) {
					ran[c.Subject] = true
					continue
				}
				if c.Status == bench.StatusSkipped {
					require.Contains(t, []string{"shmsync:mutex", "shmsync:fence"}, c.Subject, c.Reason)
					continue
				}
				require.Equal(t, bench.StatusOK, c.Status, c.Key)
				require.Len(t, c.Reps, count, c.Key)
				require.NotEmpty(t, c.Summary, c.Key)
				ran[c.Subject] = true
				if c.Scenario == "waiters" {
					require.Zero(t, c.Summary["disturbed"].Hi, c.Key)
					require.True(t, fewThreads(c), "%s: %v threads", c.Key, c.Summary["threads"].Hi)
					require.Contains(t, c.Summary, "cancel-ns", c.Key)
				}
			}
		})
	}
	for _, s := range subjects.All {
		if s.By != bench.Library || slices.Contains(s.Scenarios, "mem") {
			continue
		}
		if s.Check == nil || s.Check() == nil {
			require.True(t, ran[s.Name()], "%s took part in nothing", s.Name())
		}
	}
}

// TestBrokenLibraryIsAViolation checks that cells detect subjects that use the library wrongly.
func TestBrokenLibraryIsAViolation(t *testing.T) {
	for _, c := range []struct {
		args   []string
		reason string
	}{
		{[]string{"lock", "--prim=test:early", "--place=any", "--threads=2", "--cs=2us", "--think=0", "--time=200ms"}, "counter under the lock"},
		{[]string{"handoff", "--prim=test:twice", "--place=any", "--time=50ms"}, "token"},
		{[]string{"waiters", "--prim=test:panicky", "--waiters=40"}, "before the release"},
	} {
		t.Run(c.args[1], func(t *testing.T) {
			out, errs := violated(t, append(c.args, "--count=1", "--format=json", "--cc=none")...)
			require.Equal(t, bench.StatusViolation, parseDocument(t, out).Cells[0].Status)
			require.Contains(t, errs, c.reason)
		})
	}
}

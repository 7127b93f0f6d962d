//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/engine"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/bench/report"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/bench/subjects"
	"github.com/shmsync/shmsync/internal/proctest"
)

// Every peer in the list runs in each of its scenarios, or says why it cannot.
func TestPeersRun(t *testing.T) {
	proctest.CCompiler(t)
	d := measured(t, hasSummary, "peers", "--prim", "c:pi,c:robust-pi,c:pthread-spin,c:sysv,c:mq,go:ofd,go:futex*,in-process:chan",
		"--warmup=2ms", "--count=1", "--threads=1", "--place=any", "--kills=2", "--gap=100us", "--permits=2", "--capacity=16", "--cs=0", "--think=0")
	seen := map[string]bool{}
	for _, c := range d.Cells {
		if c.Status == bench.StatusSkipped {
			require.NotEmpty(t, c.Reason, c.Key)
		} else {
			require.Equal(t, bench.StatusOK, c.Status, c.Key)
			require.NotEmpty(t, c.Summary, c.Key)
		}
		seen[c.Subject] = true
	}
	for _, name := range []string{"c:pi", "c:robust-pi", "c:pthread-spin", "c:sysv", "c:mq", "go:ofd", "go:futex", "go:futex-waitv", "in-process:chan"} {
		require.True(t, seen[name], name)
	}
}

// System V semaphores, which the kernel would keep for ever, are removed.
func TestSysVSemaphoresAreTakenAway(t *testing.T) {
	proctest.CCompiler(t)
	s, err := subjects.Find("c:sysv")
	require.NoError(t, err)
	if err := s.Check(); err != nil {
		t.Skipf("needs System V semaphores: %v", err)
	}
	ids := func() (list []string) {
		b, err := os.ReadFile("/proc/sysvipc/sem")
		if err != nil {
			t.Skipf("needs /proc/sysvipc, to list System V semaphores: %v", err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 {
				list = append(list, f[1])
			}
		}
		return list
	}
	before := ids()
	code, _, errs := shmbench(t, "crash", "--prim=c:sysv", "--kills=2", "--count=1", "--place=any", "--strict")
	require.Zero(t, code, errs)
	code, _, errs = shmbench(t, "lock", "--prim=c:sysv", "--time=5ms", "--count=2", "--place=any", "--threads=1", "--strict")
	require.Zero(t, code, errs)
	// Other programs of this host may create semaphores during the test, and remove them soon. A semaphore that shmbench
	// did not remove would stay.
	var left []string
	require.Eventually(t, func() bool {
		left = slices.DeleteFunc(ids(), func(id string) bool { return slices.Contains(before, id) })
		return len(left) == 0
	}, proctest.Scale(time.Minute), 10*time.Millisecond, "semaphores %v", &left)
}

func TestWakeCurveRuns(t *testing.T) {
	proctest.CCompiler(t)
	// A waiter that has nothing to do sleeps. On a busy machine, some waiters are woken before they fall asleep.
	sleeps := func(c report.Cell) bool {
		slept := c.Values("slept")
		return c.Scenario != "wake" || c.Params["gap"] != "300us" || len(slept) == 0 || !strings.HasSuffix(c.Subject, "futex") || stats.Median(slept) > 0.5
	}
	d := measured(t, func(c report.Cell) bool { return c.Status != bench.StatusOK || len(c.Summary) != 0 && sleeps(c) },
		"wake", "--prim=c:futex,c:cond,c:sem,go:futex*,go:eventfd,shmsync:semaphore", "--gap=0,300us", "--place=any",
		"--waiters=3", "--warmup=2ms", "--count=1")
	seen := map[string]int{}
	for _, c := range d.Cells {
		seen[c.Scenario+" "+c.Subject]++
		if c.Status == bench.StatusSkipped {
			require.Regexp(t, "^go:futex(2|2-numa|-waitv)$", c.Subject, "what is newer than the oldest kernel that is supported")
			require.Regexp(t, "kernel|futex", c.Reason)
			continue
		}
		require.Equal(t, bench.StatusOK, c.Status, c.Key)
		require.NotEmpty(t, c.Summary, c.Key)
		if n := c.Reps[0].Metrics["n"]; n >= 2*stats.TailMin { // a busy machine may have fewer samples
			require.NotEmpty(t, c.Values("p50-ns"), c.Key)
		}
		require.True(t, sleeps(c), c.Key)
	}
	herd, err := subjects.Select("herd", nil, nil)
	require.NoError(t, err)
	for _, s := range herd {
		require.Equal(t, 4, seen["herd "+s.Name()], "%s: two gaps, one and all", s.Name())
	}
	for _, name := range []string{"futex", "futex-bitset", "futex-waitv", "futex2", "futex2-numa"} {
		require.Equal(t, 2, seen["wake go:"+name], name)
	}
	require.Equal(t, 2, seen["wake c:futex"])
}

// Even with a gap of 0, a wake cell measures some wakes, in C and in Go. On a busy machine, one run may measure none,
// so there are several attempts.
func TestWakeWithoutAGap(t *testing.T) {
	proctest.CCompiler(t)
	for _, prim := range []string{"c:futex", "go:futex"} {
		n := 0.0
		for a := new(attempts); n == 0 && a.another(); {
			code, out, errs := shmbench(t, "handoff", "--prim="+prim, "--gap=0", "--place=any", "--time=50ms", "--warmup=1ms", "--count=1", "--format=json")
			require.Equal(t, exitOK, code, errs)
			for _, c := range parseDocument(t, out).Cells {
				if c.Scenario == "wake" {
					require.Equal(t, "0", c.Params["gap"])
					n += c.Reps[0].Metrics["n"]
				}
			}
		}
		require.Positive(t, n, prim)
	}
}

func TestOversubRuns(t *testing.T) {
	proctest.CCompiler(t)
	cpus, err := place.AllowedCPUs()
	require.NoError(t, err)
	cpus = cpus[:min(len(cpus), 2)] // a cell has a limited number of workers, and a host may have hundreds of CPUs
	d := measured(t, func(c report.Cell) bool { return len(c.Values("ops/s")) != 0 },
		"oversub", "--cpus="+place.JoinInts(cpus), "--prim=shmsync:*,c:robust,c:pthread-spin", "--load=1,3", "--noise=1", "--spin=auto,0,20us", "--warmup=5ms", "--count=1")
	spins := map[string]int{}
	for _, c := range d.Cells {
		require.Equal(t, bench.StatusOK, c.Status, c.Key)
		require.NotEmpty(t, c.Values("ops/s"), c.Key)
		if strings.HasPrefix(c.Subject, "shmsync:") {
			spins[c.Params["spin"]]++
		} else {
			require.Equal(t, "auto", c.Params["spin"], "only the library has a budget")
		}
		if c.Params["load"] == "3" {
			require.Len(t, c.Reps[0].Workers, 3*len(cpus))
		}
	}
	require.Equal(t, map[string]int{"auto": 2, "0": 2, "20us": 2}, spins)
}

// The workers of a cell with a quota get no more CPU time than the quota, or the cell says why there is no quota.
func TestQuota(t *testing.T) {
	code, out, errs := shmbench(t, "oversub", "--prim=shmsync:mutex", "--load=1", "--spin=auto", "--noise=0", "--quota=0,20", "--cs=10us", "--think=0",
		"--time=400ms", "--warmup=5ms", "--count=1", "--format=json")
	require.Equal(t, exitOK, code, errs)
	cells := parseDocument(t, out).Cells
	require.Len(t, cells, 2)
	for _, c := range cells {
		switch {
		case c.Status == bench.StatusSkipped:
			require.Equal(t, "20", c.Params["quota"])
			require.Contains(t, c.Reason, "cgroup")
			proctest.Missing(t, "SHMSYNC_NEED_QUOTA", "needs a cgroup of its own, for a quota of CPU time: "+c.Reason)
		case c.Params["quota"] == "20":
			cpu, length := 0.0, 0.0
			for _, w := range c.Reps[0].Workers {
				cpu += float64(w.UserNs + w.SystemNs)
				length = max(length, w.Seconds)
			}
			require.Less(t, cpu/1e9, 0.2*length+0.17, "20 %% of %v s, and a period more", length)
		}
	}
}

// A herd cell detects a subject that wakes more threads than the cell requests.
func TestHerdSeesViolations(t *testing.T) {
	_, errs := violated(t, "wake", "--prim=test:stampede", "--place=any", "--waiters=3", "--wake=1", "--gap=200us", "--time=50ms",
		"--warmup=2ms", "--count=1", "--timeout=2s", "--cc=none")
	require.Contains(t, errs, "rounds")
}

func TestStressUsage(t *testing.T) {
	for _, args := range [][]string{
		{"oversub", "--spin=much"}, {"oversub", "--spin=2s"}, {"oversub", "--load=0"}, {"lock", "--rate=0"}, {"oversub", "--noise=99"},
		{"wake", "--gap=-1s"}, {"suite", "--quick", "--std"}, {"--std", "--full"}, {"lock", "--out=" + t.TempDir() + "/no/such"},
	} {
		code, _, errs := shmbench(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs, args)
	}
}

// Each suite fits its time according to its own estimate, and prints its plan.
func TestSuitesFitTheirTime(t *testing.T) {
	for _, c := range []struct {
		preset  plan.Preset
		atMost  time.Duration
		atLeast int
	}{{plan.DefaultSuite, time.Minute, 100}, {plan.StdSuite, 10 * time.Minute, 300}} {
		s := &session{common: &common{Timeout: time.Second, Seed: 1, Shuffle: true}}
		o, cells, err := s.suite(c.preset)
		require.NoError(t, err)
		require.Greater(t, len(cells), c.atLeast/2)
		require.Less(t, plan.ETA(plan.Order(cells, o.Count, false, 0)), c.atMost)
		require.Equal(t, plan.Rounds, o.Count)
		seen := map[string]bool{}
		for _, cell := range cells {
			require.False(t, seen[cell.Key()], cell.Key())
			seen[cell.Key()] = true
		}
		for _, sc := range bench.Scenarios {
			if c.atMost > time.Minute || !slices.Contains(plan.LongOnly, sc.Name) {
				require.Contains(t, strings.Join(outline(cells, o), "\n"), sc.Name)
			}
		}
	}
	for flag, want := range map[string]int{"--quick": plan.QuickRounds, "--std": plan.Rounds, "--full": plan.Rounds} {
		code, out, errs := shmbench(t, "suite", flag, "-n")
		require.Zero(t, code, errs)
		require.Contains(t, out, fmt.Sprintf("× %d repetitions, about ", want), flag)
	}
	// Values of the user for times and counts are kept.
	s := &session{common: &common{Timeout: time.Second, Seed: 1, Count: 7}}
	o, _, err := s.suite(plan.DefaultSuite)
	require.NoError(t, err)
	require.Equal(t, 7, o.Count)
	require.Equal(t, plan.DefaultSuite.Time, o.Time)
}

// If the host is slower than planned, repetitions are left out, but each cell has at least one.
func TestSuiteEndsInTime(t *testing.T) {
	s := &session{common: &common{Timeout: 10 * time.Second, Seed: 1, Prim: []string{"go:flock", "go:eventfd"}, CC: "none", Count: 5, Time: time.Millisecond, Place: []string{bench.PlaceAny}}}
	o, err := s.common.options(plan.QuickSuite.Defaults)
	require.NoError(t, err)
	cells, err := plan.Cells(o, "uncontended")
	require.NoError(t, err)
	sequence := plan.Order(cells, o.Count, true, 1)
	e := &engine.Engine{CPUs: o.CPUs, Timeout: o.Timeout, Until: time.Now()}
	results := e.Run(t.Context(), cells, sequence)
	require.Equal(t, len(sequence)-len(cells), e.Cut)
	for _, r := range results {
		require.Len(t, r.Reps, 1)
	}
}

// If the host is far slower than planned, even the first repetition of a cell may be left out. Such a cell says so.
func TestSuiteEndsOnAVerySlowHost(t *testing.T) {
	s := &session{common: &common{Timeout: 10 * time.Second, Seed: 1, Prim: []string{"go:flock", "go:eventfd"}, CC: "none", Count: 5, Time: time.Millisecond, Place: []string{bench.PlaceAny}}}
	o, err := s.common.options(plan.QuickSuite.Defaults)
	require.NoError(t, err)
	cells, err := plan.Cells(o, "uncontended")
	require.NoError(t, err)
	sequence := plan.Order(cells, o.Count, true, 1)
	e := &engine.Engine{CPUs: o.CPUs, Timeout: o.Timeout, Last: time.Now().Add(-time.Second)}
	results := e.Run(t.Context(), cells, sequence)
	require.Equal(t, len(sequence), e.Cut)
	for _, r := range results {
		status, reason := r.Status()
		require.Equal(t, bench.StatusSkipped, status)
		require.Contains(t, reason, "no time was left")
	}
}

// The shares of all kinds of hand-over add up to 1. If only one thread locks, all hand-overs are from this thread to
// itself.
func TestHandoversAreCounted(t *testing.T) {
	shares := func(c report.Cell) (sum float64) {
		for _, kind := range bench.HandoverKinds {
			sum += c.Reps[0].Metrics[kind]
		}
		return sum
	}
	d := measured(t, func(c report.Cell) bool { return shares(c) != 0 },
		"lock", "--prim=shmsync:mutex,go:flock", "--place=any", "--threads=1", "--count=1", "--cc=none")
	for _, c := range d.Cells {
		require.InDelta(t, 1, shares(c), 1e-9, c.Key)
	}
}

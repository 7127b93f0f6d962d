//go:build linux

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return b
}

// synthetic returns a document of a quiet host, without cells.
func synthetic(t *testing.T, tree string) *Document {
	t.Helper()
	top := topotest.Host(t, tree)
	return &Document{Schema: Schema, Topology: top, Command: []string{"shmbench"},
		Env: host.Environment{CPU: "bare metal", CPUs: len(top.CPUs), Used: top.IDs(), Nodes: len(top.Nodes)}}
}

// add adds a cell to a document. The parameter metrics has the values of each metric, one for each round.
func (d *Document) add(scenario, subject string, params map[string]string, metrics map[string][]float64) {
	sc := bench.ScenarioByName(scenario)
	unit := map[string]string{"mem": memChaseMetric}[scenario]
	if sc != nil {
		unit = sc.Unit
	}
	by, prim, _ := strings.Cut(subject, ":")
	named := map[string]string{"by": by, "prim": prim}
	for k, v := range params {
		named[k] = v
	}
	c := Cell{Key: scenario + "/" + bench.JoinParams(named), Scenario: scenario, Subject: subject, Unit: unit, Params: params, Status: bench.StatusOK}
	for name, values := range metrics {
		for i, v := range values {
			for len(c.Reps) <= i {
				c.Reps = append(c.Reps, Repetition{Status: bench.StatusOK, Metrics: map[string]float64{}})
			}
			c.Reps[i].Metrics[name] = v
		}
	}
	d.Cells = append(d.Cells, c)
}

// addLong does the same as add, but repeats the values of each metric four times. The cell has four times as many
// rounds.
func (d *Document) addLong(scenario, subject string, params map[string]string, metrics map[string][]float64) {
	long := map[string][]float64{}
	for name, values := range metrics {
		long[name] = slices.Repeat(values, 4)
	}
	d.add(scenario, subject, params, long)
}

// syntheticMatrix returns a document with a matrix of all CPUs of a recorded host, with times that the caller chooses.
func syntheticMatrix(t *testing.T, tree string, rounds int, of func(a, b, round int) float64) *Document {
	t.Helper()
	d := synthetic(t, tree)
	for _, a := range d.Topology.IDs() {
		for _, b := range d.Topology.IDs() {
			if a == b {
				continue
			}
			var vs []float64
			for i := range rounds {
				vs = append(vs, of(a, b, i))
			}
			d.add("matrix", "go:one-line", map[string]string{"place": topology.JoinCPUs([]int{a, b})}, map[string][]float64{"p50-ns": vs})
		}
	}
	return d
}

// about returns n random values that differ from v by at most share*v.
func about(rng *rand.Rand, v, share float64, n int) (list []float64) {
	for range n {
		list = append(list, v*(1+share*(2*rng.Float64()-1)))
	}
	return list
}

func adviceOf(t *testing.T, d *Document, rule string) advice {
	t.Helper()
	for _, a := range Recommend(d) {
		if a.Rule == rule {
			return a
		}
	}
	require.Failf(t, "no advice", "%s: %+v", rule, Recommend(d))
	return advice{}
}

// TestNoAdviceOnTimesUnderNoise checks rule R0: for a host that is emulated or busy, there is no advice on times. The
// advice on settings of the host remains.
func TestNoAdviceOnTimesUnderNoise(t *testing.T) {
	far := func(a, b, _ int) float64 { return map[bool]float64{true: 50, false: 500}[a%4/2 == b%4/2] }
	for name, c := range map[string]struct {
		spoil func(*Document)
		why   string
	}{
		"emulated":  {func(d *Document) { d.Env.CPU = "QEMU TCG CPU version 2.5+" }, "emulated"},
		"busy":      {func(d *Document) { d.Env.Others = 0.06 }, "other programs took 6.0 %"},
		"stolen":    {func(d *Document) { d.Env.Steal = 0.02 }, "hypervisor took 2.0 %"},
		"throttled": {func(d *Document) { d.Env.Throttled = 3 }, "quota stopped the run 3 times"},
		"without a CPU": {func(d *Document) {
			d.addWorkers(bench.WorkerReport{Seconds: 0.5, UserNs: 4e8, SystemNs: 5e7}, bench.WorkerReport{Seconds: 0.5, UserNs: 4.5e8, Voluntary: 20})
		}, "without it for 10.0 % of the time"},
		"unpinned": {func(d *Document) {
			for i := range d.Cells {
				d.Cells[i].Params["place"] = bench.PlaceAny
			}
		}, "no cell was pinned"},
	} {
		t.Run(name, func(t *testing.T) {
			d := syntheticMatrix(t, "two-socket", 12, far)
			d.Env.NUMABalance = true
			require.Equal(t, adviceDo, adviceOf(t, d, "R2").Verdict, "before")
			c.spoil(d)
			all := Recommend(d)
			require.Equal(t, "R0", all[0].Rule)
			require.Equal(t, adviceWithheld, all[0].Verdict)
			require.Contains(t, strings.Join(all[0].Evidence, "\n"), c.why)
			for _, a := range all[1:] {
				require.Equal(t, "R11", a.Rule, "nothing about times: %+v", a)
			}
			require.Greater(t, len(all), 1, "the host's settings are another matter")
		})
	}
}

// A high load average before the run does not matter. The CPU time that other programs took during the run counts.
func TestPastLoadWithholdsNothing(t *testing.T) {
	d := syntheticMatrix(t, "two-socket", 3, func(_, _, _ int) float64 { return 100 })
	d.Env.Load = 50
	require.Empty(t, noTiming(d))
}

// addWorkers adds a cell of a lock whose two workers have a CPU each.
func (d *Document) addWorkers(workers ...bench.WorkerReport) {
	d.add("lock", "shmsync:mutex", map[string]string{"place": "llc", "procs": "2", "threads": "1"}, map[string][]float64{"ops/s": {1e6}})
	d.Cells[len(d.Cells)-1].Reps[0].Workers = workers
}

// TestLostTimeIsThatOfBusyWorkers checks that a worker does not count as disturbed by other programs if it slept, was
// not pinned, or yielded often.
func TestLostTimeIsThatOfBusyWorkers(t *testing.T) {
	busy := bench.WorkerReport{Seconds: 1, UserNs: 99e7}
	for name, w := range map[string]bench.WorkerReport{
		"slept":        {Seconds: 1, UserNs: 1e8, Voluntary: 5000},
		"not pinned":   {CPU: -1, Seconds: 1, UserNs: 1e8},
		"yielded":      {Seconds: 1, UserNs: 98e7, Preempted: 5000},
		"not measured": {},
	} {
		d := synthetic(t, "two-socket")
		d.addWorkers(busy, w)
		require.Empty(t, noTiming(d), name)
		d.addWorkers(bench.WorkerReport{Seconds: 1, UserNs: 5e8})
		require.NotEmpty(t, noTiming(d), name)
		d.Cells[len(d.Cells)-1].Reps[0].Dirty = true
		require.Empty(t, noTiming(d), "%s: a dirty round counts for nothing", name)
	}
	d := synthetic(t, "two-socket")
	d.addWorkers(bench.WorkerReport{Seconds: 1, UserNs: 1e7, Voluntary: 5})
	d.Cells[len(d.Cells)-1].Scenario = "crash"
	require.Empty(t, noTiming(d), "a process that waits for a kill needs no CPU")
	d = synthetic(t, "two-socket")
	d.addWorkers(bench.WorkerReport{Seconds: 0.1, UserNs: 9e7})
	require.Empty(t, noTiming(d), "one time slice of another program in a short run")
}

// TestColocation checks rule R2 for matrices of many kinds, such as with equal times, noise, or hybrid CPUs.
func TestColocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	noise := func(v, share float64) float64 { return v * (1 + share*(2*rng.Float64()-1)) }
	twoSocket := func(a, b int) bool { return a%4/2 == b%4/2 }
	for _, c := range []struct {
		name, tree string
		of         func(a, b, round int) float64
		verdict    string
		text       []string
	}{
		{"disjoint", "two-socket", func(a, b, _ int) float64 {
			return noise(map[bool]float64{true: 92, false: 310}[twoSocket(a, b)], 0.05)
		}, adviceDo, []string{"within one last-level cache", "CPUs 0-1,4-5", "across"}},
		{"the second is nearer", "two-socket", func(a, b, _ int) float64 {
			if !twoSocket(a, b) {
				return noise(310, 0.02)
			}
			return noise(map[bool]float64{true: 60, false: 92}[a%4 >= 2], 0.02)
		}, adviceDo, []string{"CPUs 2-3,6-7"}},
		{"flat", "two-socket", func(a, b, _ int) float64 { return noise(100, 0.05) }, adviceNone, []string{"less than 1.3"}},
		{"small step", "two-socket", func(a, b, _ int) float64 {
			return noise(map[bool]float64{true: 100, false: 120}[twoSocket(a, b)], 0.01)
		}, adviceNone, []string{"less than 1.3"}},
		{"overlapping", "two-socket", func(a, b, round int) float64 {
			return map[bool]float64{true: 100, false: 150}[twoSocket(a, b)] * (1 + 0.4*float64(round%3)) // all times drift a lot
		}, adviceDo, nil},
		{"noisy", "two-socket", func(a, b, round int) float64 {
			quiet := map[bool]float64{true: 100, false: 150}[twoSocket(a, b)]
			if round%2 == 0 == twoSocket(a, b) {
				return quiet * 3 // as if another program had run
			}
			return quiet
		}, adviceUndecided, nil},
		{"nodes of a package", "nps4", func(a, b, _ int) float64 {
			switch {
			case a/2 == b/2:
				return noise(25, 0.05)
			case a/4 == b/4:
				return noise(110, 0.05)
			}
			return noise(120, 0.05)
		}, adviceDo, []string{"within one last-level cache", "across"}},
		{"caches make no difference, nodes do", "nps4", func(a, b, _ int) float64 {
			return noise(map[bool]float64{true: 60, false: 200}[a/4 == b/4], 0.03)
		}, adviceDo, []string{"within one NUMA node"}},
		{"hybrid", "hybrid", func(a, b, _ int) float64 {
			kind := func(c int) int {
				return map[bool]int{true: 0, false: 1}[c < 4] + map[bool]int{true: 1, false: 0}[c > 7]
			}
			if kind(a) == kind(b) {
				return noise(35, 0.04)
			}
			return noise(90, 0.04)
		}, adviceDo, []string{"within one measured cluster"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := adviceOf(t, syntheticMatrix(t, c.tree, 8, c.of), "R2")
			require.Equal(t, c.verdict, a.Verdict, a.Text)
			for _, text := range c.text {
				require.Contains(t, a.Text, text)
			}
			if c.verdict == adviceDo {
				require.GreaterOrEqual(t, a.Effect.Center, farther)
				require.Greater(t, a.Effect.Lo, 1.0)
				require.Equal(t, 8, a.Effect.N)
				require.NotEmpty(t, a.Do)
			}
			require.NotEmpty(t, a.Evidence)
		})
	}
}

// TestColocationLeavesSiblingsOut checks that rule R2 ignores pairs of threads of one core. Such threads are near each
// other, but two processes that spin should not share a core.
func TestColocationLeavesSiblingsOut(t *testing.T) {
	d := syntheticMatrix(t, "two-socket", 6, func(a, b, _ int) float64 {
		if a%4 == b%4 {
			return 15
		}
		return 100
	})
	require.Equal(t, adviceNone, adviceOf(t, d, "R2").Verdict)
}

func TestDirectionsThatDiffer(t *testing.T) {
	d := syntheticMatrix(t, "nps4", 6, func(a, b, round int) float64 {
		if a == 2 && b == 9 {
			return 300 + float64(round)
		}
		return 100 + float64(round)
	})
	a := adviceOf(t, d, "R2")
	require.Contains(t, strings.Join(a.Evidence, "\n"), "from CPU 2 to 9 takes 2.95× [2.")
	require.NotContains(t, strings.Join(a.Evidence, "\n"), "from CPU 9 to 2")
}

func TestOnePairIsNoChoice(t *testing.T) {
	d := synthetic(t, "two-socket")
	d.add("matrix", "go:one-line", map[string]string{"place": "0+1"}, map[string][]float64{"p50-ns": {50, 51, 52}})
	a := adviceOf(t, d, "R2")
	require.Equal(t, adviceMoot, a.Verdict)
	require.Contains(t, a.Text, "one pair of CPUs was measured (0-1)")
}

func TestSpinAdvice(t *testing.T) {
	d := synthetic(t, "two-socket")
	cell := map[string]string{"place": bench.PlaceCross, "gap": "1.5ms"}
	d.add("wake", "shmsync:futex", cell, map[string][]float64{"p50-ns": {31e3, 30e3, 32e3}, "waker-p50-ns": {14e3, 14e3, 14e3}})
	d.add("wake", "shmsync:futex", map[string]string{"place": bench.PlaceSame, "gap": "1.5ms"}, map[string][]float64{"p50-ns": {2e3, 2e3, 2e3}, "waker-p50-ns": {1e3, 1e3, 1e3}})
	a := adviceOf(t, d, "R1")
	require.Equal(t, adviceDo, a.Verdict)
	require.Contains(t, a.Do[0], "Spin: 45 * time.Microsecond")
	require.InDelta(t, 45e3, a.Effect.Center, 1)
	require.Equal(t, "ns", a.Unit)

	// Rule R1 ignores a cell whose waiters were awake when the wake came.
	awake := map[string]string{"place": bench.PlaceCross, "gap": "0"}
	d.add("wake", "shmsync:futex", awake, map[string][]float64{"p50-ns": {300, 300, 300}, "waker-p50-ns": {100, 100, 100}, "slept": {0.05, 0.05, 0.06}})
	require.Contains(t, adviceOf(t, d, "R1").Do[0], "Spin: 45 * time.Microsecond")

	// The evidence says how much a fixed spin budget gains if there are more workers than CPUs.
	for spin, ops := range map[string]float64{"auto": 1e6, "0": 1.5e6, "20us": 0.8e6} {
		d.add("oversub", "shmsync:mutex", map[string]string{"load": "4", "spin": spin, "cs": "1us"}, map[string][]float64{"ops/s": {ops, 1.01 * ops, 0.99 * ops}})
	}
	require.Contains(t, strings.Join(adviceOf(t, d, "R1").Evidence, "\n"), "with 4 workers for each CPU, spin=0 lets through 1.50× [")

	noisy := synthetic(t, "two-socket")
	noisy.add("wake", "shmsync:futex", cell, map[string][]float64{"p50-ns": {31e3, 80e3, 200e3}, "waker-p50-ns": {14e3, 14e3, 14e3}})
	require.Equal(t, adviceNone, adviceOf(t, noisy, "R1").Verdict)
}

func mem(policy, node, huge string) map[string]string {
	return map[string]string{"mem": policy, "node": node, "huge": huge}
}

func TestMemoryAdvice(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	place := func(d *Document, policy, node string, chase, scan float64) {
		d.add("mem", "shmsync:arena", mem(policy, node, "none"), map[string][]float64{memChaseMetric: about(rng, chase, 0.01, 12), memScanMetric: about(rng, scan, 0.01, 12)})
	}
	d := synthetic(t, "two-socket")
	d.Env.Used = []int{0, 2, 3, 6} // one CPU of node 0, three CPUs of node 1
	for _, m := range []struct {
		policy, node string
		chase, scan  float64
	}{
		{"bind:0", "0", 90, 12e3}, {"bind:0", "1", 140, 7e3}, {"bind:1", "0", 140, 7e3}, {"bind:1", "1", 90, 12e3},
		{"interleave:0-1", "0", 115, 9e3}, {"interleave:0-1", "1", 115, 9e3},
	} {
		place(d, m.policy, m.node, m.chase, m.scan)
	}
	a := adviceOf(t, d, "R3")
	require.Equal(t, adviceDo, a.Verdict, a.Text)
	require.Contains(t, a.Text, "on node 1")
	require.InDelta(t, (90+3*140)/(140+3*90.0), a.Effect.Center, 0.03)
	require.Len(t, a.Evidence, 4)

	// If the run uses as many CPUs of one node as of the other, neither node is better.
	d.Env.Used = d.Topology.IDs()
	require.Equal(t, adviceNone, adviceOf(t, d, "R3").Verdict)

	// With interleaved memory, the slowest scan is faster than with memory on one node, and no load takes longer than a
	// load from a remote node.
	a = adviceOf(t, d, "R4")
	require.Equal(t, adviceDo, a.Verdict, a.Text)
	require.InDelta(t, 9.0/7, a.Effect.Center, 0.03)
	for i := range d.Cells {
		if c := &d.Cells[i]; c.Params["mem"] == "interleave:0-1" {
			for _, r := range c.Reps {
				r.Metrics[memChaseMetric] *= 2
			}
		}
	}
	require.Equal(t, adviceNone, adviceOf(t, d, "R4").Verdict, "single loads would suffer")

	require.Equal(t, adviceUnknown, adviceOf(t, d, "R5").Verdict, "no other pages were measured")
	d.add("mem", "shmsync:arena", mem("bind:0", "0", "2M"), map[string][]float64{memChaseMetric: about(rng, 60, 0.01, 12)})
	a = adviceOf(t, d, "R5")
	require.Equal(t, adviceDo, a.Verdict)
	require.Contains(t, a.Do[0], "vm.nr_hugepages")
	require.InDelta(t, 1.5, a.Effect.Center, 0.05)
}

// Rule R3 ignores a memory node that was measured from the CPUs of only some nodes.
func TestNodesThatWereNotMeasuredFromAll(t *testing.T) {
	d := synthetic(t, "two-socket")
	for _, node := range []string{"0", "1"} {
		d.add("mem", "shmsync:arena", mem("bind:0", node, "none"), map[string][]float64{memChaseMetric: {100, 101, 102}})
	}
	d.add("mem", "shmsync:arena", mem("bind:1", "1", "none"), map[string][]float64{memChaseMetric: {10, 11, 12}})
	require.Equal(t, adviceMoot, adviceOf(t, d, "R3").Verdict)
}

// ranOn makes the threads of the last cell run on the given CPUs, in all repetitions. The parameter share is the share
// of the checks that found a thread on the CPU of the plan.
func (d *Document) ranOn(share float64, cpus ...int) {
	c := &d.Cells[len(d.Cells)-1]
	for i := range c.Reps {
		c.Reps[i].Metrics["in-place"] = share
		for _, cpu := range cpus {
			c.Reps[i].Workers = append(c.Reps[i].Workers, bench.WorkerReport{CPU: cpu})
		}
	}
}

func TestCohortAdvice(t *testing.T) {
	crowd := map[string]string{"cs": "100ns", "think": "100ns", "place": bench.PlaceSpread, "procs": "8", "threads": "1"}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, c := range []struct {
		name                    string
		gain, tail, fair, least float64
		cpus                    []int
		inPlace                 float64
		verdict, text           string
	}{
		{"gains", 1.5, 1.2, 0.95, 0.8, all, 1, adviceDo, "use mutex-cohort for locks with 8 contenders"},
		{"gains little", 1.05, 1, 1, 1, all, 1, adviceNone, "gains less than 10 %"},
		{"loses", 0.7, 1, 1, 1, all, 1, adviceNone, "gains less than 10 %"},
		{"slow tail", 1.5, 3, 1, 1, all, 1, adviceNone, "take 3 times as long"},
		{"unfair", 1.5, 1, 0.5, 0.6, all, 1, adviceNone, "Jain's index is 0.50"},
		{"starves one", 1.5, 1, 0.9, 0.2, all, 1, adviceNone, "starves a worker: it gets 0.20 of the mean"},
		{"ran elsewhere", 1.5, 1, 1, 1, all, 0.9, adviceNone, "on other CPUs in 10.0 % of the samples"},
		{"two CPUs of a node are two contenders", 1.5, 1, 1, 1, []int{0, 0, 1, 1, 2, 2, 3, 3}, 1, adviceUnknown, "--place spread"},
		{"one node", 1.5, 1, 1, 1, []int{0, 1, 4, 5, 0, 1, 4, 5}, 1, adviceUnknown, "--place spread"},
	} {
		d := synthetic(t, "two-socket")
		d.addLong("lock", "shmsync:mutex", crowd, map[string][]float64{"ops/s": {1e6, 1.01e6, 1.02e6}, "p99-ns": {1e4, 1e4, 1e4}, "jain": {1, 1, 1}, "min-share": {1, 1, 1}})
		d.ranOn(1, c.cpus...)
		d.addLong("lock", "shmsync:mutex-cohort", crowd, map[string][]float64{"ops/s": {c.gain * 1e6, c.gain * 1.01e6, c.gain * 1.02e6},
			"p99-ns": {c.tail * 1e4, c.tail * 1e4, c.tail * 1e4}, "jain": {c.fair, c.fair, c.fair}, "min-share": {c.least, c.least, c.least}})
		d.ranOn(c.inPlace, c.cpus...)
		a := adviceOf(t, d, "R6")
		require.Equal(t, c.verdict, a.Verdict, c.name)
		require.Contains(t, a.Text, c.text)
	}
}

// TestCohortAdviceNamesTheLeastCrowd checks which number of contenders the advice names: the smallest one for which the
// cohort lock gains with this number and with all larger measured numbers.
func TestCohortAdviceNamesTheLeastCrowd(t *testing.T) {
	for _, c := range []struct {
		gains []float64 // with 8, 16 and 32 contenders
		text  string
	}{
		{[]float64{1.2, 1.5, 2}, "use mutex-cohort for locks with 8 contenders"},
		{[]float64{1, 1.5, 1.3}, "use mutex-cohort for locks with 16 contenders"},
		{[]float64{1.5, 1.5, 0.8}, "gains less than 10 % with 32 contenders"},
	} {
		d := synthetic(t, "two-socket")
		for i, gain := range c.gains {
			crowd := map[string]string{"place": bench.PlaceSpread, "procs": "8", "threads": strconv.Itoa(1 << i)}
			for subject, v := range map[string]float64{"shmsync:mutex": 1, "shmsync:mutex-cohort": gain} {
				d.addLong("lock", subject, crowd, map[string][]float64{"ops/s": {v * 1e6, v * 1.01e6, v * 1.02e6}, "p99-ns": {1e4, 1e4, 1e4}, "jain": {1, 1, 1}, "min-share": {1, 1, 1}})
				d.ranOn(1, 0, 1, 2, 3, 4, 5, 6, 7)
			}
		}
		require.Contains(t, adviceOf(t, d, "R6").Text, c.text)
	}
}

// TestSpinningRestsOnWakesOfManyRounds checks that the spin budget comes from a cell that was measured in every round.
// A faster cell with few rounds does not count.
func TestSpinningRestsOnWakesOfManyRounds(t *testing.T) {
	d := synthetic(t, "two-socket")
	add := func(gap string, ns float64, rounds int) {
		many := slices.Repeat([]float64{ns}, rounds)
		d.add("wake", "shmsync:futex", map[string]string{"place": "llc", "gap": gap}, map[string][]float64{"p50-ns": many, "waker-p50-ns": many, "slept": slices.Repeat([]float64{1}, rounds)})
	}
	add("200us", 20000, 2)
	add("1.5ms", 30000, 12)
	a := adviceOf(t, d, "R1")
	require.Equal(t, adviceDo, a.Verdict)
	require.Contains(t, a.Do[0], "Spin: 60 * time.Microsecond")
}

// TestDisturbedRunsAreUndecided checks the decisions of a run in which other programs disturbed every round. A measured
// question is undecided, and says why. The bars still show the disturbed figures.
func TestDisturbedRunsAreUndecided(t *testing.T) {
	o, cells := plannedCells(t, "two-by-96")
	d := planted(o, cells, 5)
	d.Rounds = &Rounds{Planned: 12, Made: 12, Dirty: 12}
	for i := range d.Cells {
		for k := range d.Cells[i].Reps {
			d.Cells[i].Reps[k].Dirty = true
		}
	}
	d.Advice = Recommend(d)
	for _, one := range Decisions(d, d.Advice) {
		require.NotContains(t, one.Because, "of 0")
		if one.Number == 8 {
			require.Equal(t, adviceUndecided, one.Verdict)
			require.Contains(t, one.Text, "disturbed 12 of 12 rounds")
		}
		for i, b := range one.Bars {
			require.Equal(t, i > 0, b.Ratio != "", "%s: %s", one.Question, b.Name)
		}
	}
}

// TestColocationAndCoresAreOneCommand checks a host on which R2 names both threads of each core, and R13 advises to use
// one of them. The decision has one command, with one thread of each core.
func TestColocationAndCoresAreOneCommand(t *testing.T) {
	o, cells := plannedCells(t, "hosts/epyc9654-2p-nps4")
	d := planted(o, cells, 7, manyFacts)
	d.Advice = Recommend(d)
	one := Decisions(d, d.Advice)[0]
	require.Len(t, one.Do, 1)
	require.Contains(t, one.Do[0], "taskset -c 8-15 PROGRAM")
	require.Contains(t, one.Text, "CPUs 8-15,200-207")
	require.Contains(t, one.Text, "a core of its own: two cores")
	require.NotContains(t, one.Text, "CPUs 0-191")
}

func TestReaderAdvice(t *testing.T) {
	d := synthetic(t, "two-socket")
	for _, line := range []struct {
		read    string
		rwmutex float64
	}{{"50", 0.6e6}, {"90", 1.3e6}, {"99", 4e6}} {
		p := map[string]string{"read": line.read, "cs": "1us", "procs": "2"}
		d.addLong("rw", "shmsync:mutex", p, map[string][]float64{"ops/s": {1e6, 1e6, 1e6}})
		d.addLong("rw", "shmsync:rwmutex", p, map[string][]float64{"ops/s": {line.rwmutex, 1.01 * line.rwmutex, 0.99 * line.rwmutex}})
	}
	a := adviceOf(t, d, "R7")
	require.Equal(t, adviceDo, a.Verdict)
	require.Contains(t, a.Text, "pays from 90 % reads on, and not at 50 %")
	require.Len(t, a.Evidence, 3)

	d = synthetic(t, "two-socket")
	p := map[string]string{"read": "99", "cs": "0"}
	d.addLong("rw", "shmsync:mutex", p, map[string][]float64{"ops/s": {1e6, 1e6, 1e6}})
	d.addLong("rw", "shmsync:rwmutex", p, map[string][]float64{"ops/s": {0.5e6, 0.5e6, 0.5e6}})
	require.Contains(t, adviceOf(t, d, "R7").Text, "use a Mutex even at 99 % reads")
}

func TestStripeAndBatchAdvice(t *testing.T) {
	d := synthetic(t, "two-socket")
	for keys, ops := range map[string]float64{"1": 1e6, "16": 3e6, "64": 4e6, "1024": 4.05e6} {
		d.addLong("multi", "shmsync:multilock", map[string]string{"keys": keys, "skew": "zipf"}, map[string][]float64{"ops/s": {ops, 1.002 * ops, 0.998 * ops}})
	}
	a := adviceOf(t, d, "R8")
	require.Equal(t, adviceDo, a.Verdict)
	require.Contains(t, a.Text, "64 stripes")
	require.Contains(t, a.Text, "more gain less than 10 %")

	for batch, ops := range map[string]float64{"1": 4.1e6, "16": 9.8e6} {
		d.addLong("queue", "shmsync:queue", map[string]string{"batch": batch, "capacity": "64"}, map[string][]float64{"ops/s": {ops, 1.01 * ops, 0.99 * ops}})
	}
	a = adviceOf(t, d, "R9")
	require.Equal(t, adviceDo, a.Verdict)
	require.Contains(t, a.Text, "move 16 items at a time: 4.10M → 9.80M")
}

func TestDeathAdvice(t *testing.T) {
	d := synthetic(t, "two-socket")
	p := map[string]string{"place": bench.PlaceCross, "kills": "60"}
	d.add("crash", "shmsync:mutex", p, map[string][]float64{"p50-ns": {1e5, 1e5, 1e5}, "max-ns": {4e5, 4e5, 5e5}})
	d.add("crash", "shmsync:mutex-norobust", p, map[string][]float64{"p50-ns": {1e6, 1e6, 1e6}, "max-ns": {2e6, 2e6, 2e6}})
	a := adviceOf(t, d, "R10")
	require.Equal(t, adviceAsIs, a.Verdict)
	require.Contains(t, a.Text, "p50 100µs, max 500µs")
	require.Contains(t, strings.Join(a.Evidence, "\n"), "without the kernel's robust list: p50 1ms")
}

// TestHygiene checks that R11 names the settings of recorded hosts that should change.
func TestHygiene(t *testing.T) {
	for tree, want := range map[string][]string{
		"two-socket": nil,
		"asymmetric": {"echo 0,4 > cpuset.mems", "time of 1.50 CPUs"},
		"memoryless": {"never node 2", "name node 1"},
		"hybrid":     {"taskset -c 0-3"},
		"cpuless":    nil,
		"nps4":       nil,
	} {
		d := synthetic(t, tree)
		text := fmt.Sprint(hygiene(d))
		for _, w := range want {
			require.Contains(t, text, w, tree)
		}
		require.Equal(t, len(want) == 0, len(hygiene(d)) == 0, tree)
	}
	d := synthetic(t, "two-socket")
	d.Env.NUMABalance, d.Env.Governor = true, "powersave"
	d.Cells = []Cell{{Scenario: "mem", Status: bench.StatusSkipped, Reason: "the system permits no NUMA placement"}}
	text := fmt.Sprint(hygiene(d))
	for _, want := range []string{"kernel.numa_balancing=0", "frequency-set -g performance", "CAP_SYS_NICE"} {
		require.Contains(t, text, want)
	}
}

// TestTooFewRepetitionsAreNoGround checks that no rule gives advice after only two repetitions: these may be close to
// each other by chance.
func TestTooFewRepetitionsAreNoGround(t *testing.T) {
	clear := func(a, b, _ int) float64 { return map[bool]float64{true: 50, false: 500}[a%4/2 == b%4/2] }
	for rounds, want := range map[int]string{1: adviceNone, 2: adviceNone, 3: adviceDo} {
		d := syntheticMatrix(t, "two-socket", rounds, clear)
		a := adviceOf(t, d, "R2")
		require.Equal(t, adviceUndecided, a.Verdict, rounds)
		require.Contains(t, a.Text, fmt.Sprintf("needs about %d rounds", a.Needs))
		require.Equal(t, adviceDo, adviceOf(t, syntheticMatrix(t, "two-socket", a.Needs, clear), "R2").Verdict, "so many rounds are enough")
		require.Equal(t, adviceUndecided, adviceOf(t, syntheticMatrix(t, "two-socket", a.Needs-1, clear), "R2").Verdict, "and fewer are not")
		d.add("wake", "shmsync:futex", map[string]string{"place": bench.PlaceCross}, map[string][]float64{"p50-ns": []float64{3e4, 3e4, 3e4}[:rounds], "waker-p50-ns": []float64{1e4, 1e4, 1e4}[:rounds]})
		require.Equal(t, want, adviceOf(t, d, "R1").Verdict, rounds)
	}
}

// TestNotMeasured checks that the advice of a rule without measurements is the command that makes them.
func TestNotMeasured(t *testing.T) {
	d := synthetic(t, "two-socket")
	d.add("barrier", "shmsync:barrier", map[string]string{"place": bench.PlaceCross}, map[string][]float64{"p50-ns": {1, 2, 3}})
	all := Recommend(d)
	require.Len(t, all, len(rules))
	for _, a := range all {
		require.Equal(t, adviceUnknown, a.Verdict, a.Rule)
		require.Contains(t, a.Command(), "shmbench ")
	}
	var b bytes.Buffer
	WriteAdvice(&b, all)
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, len([]rune(line)), TableWidth+1)
	}
	require.Contains(t, b.String(), "not measured: R1 spinning (shmbench handoff)")
}

// A result file gives the same advice after it was written and read back.
func TestAdviceOfAFile(t *testing.T) {
	d := syntheticMatrix(t, "nps4", 12, func(a, b, _ int) float64 { return map[bool]float64{true: 50, false: 500}[a/4 == b/4] })
	file := filepath.Join(t.TempDir(), "result.json")
	b, err := json.Marshal(d)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, b, 0o666))
	read, err := ReadDocument(file)
	require.NoError(t, err)
	require.Equal(t, Recommend(d), Recommend(read))
	var out bytes.Buffer
	WriteAdvice(&out, Recommend(read))
	require.Contains(t, out.String(), "R2  where processes run: keep processes that share a lock within one NUMA node")
	require.Contains(t, out.String(), "effect: 10.0× [10.0..10.0] (signed rank 95% of 12)")

	bad := filepath.Join(t.TempDir(), "bad.json")
	for text, want := range map[string]string{
		string(b[:len(b)/2]): "cut short",
		strings.Replace(string(b), Schema, "shmbench/99", 1): `has schema "shmbench/99"`,
		"":   "cut short",
		"[]": "no result file",
		`{"schema":"shmbench/1","cells":[{"key":"x","unit":""}]}`: "no unit",
	} {
		require.NoError(t, os.WriteFile(bad, []byte(text), 0o666))
		_, err := ReadDocument(bad)
		require.ErrorContains(t, err, want)
	}
}

//go:build linux

package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// The tests below plant facts in made-up results. The cells are those of the default plan of a recorded host. All cells
// cost the same, except that a fact multiplies the cost of some of them. All figures have noise.

// plantedHosts are recorded hosts with very different topologies. Some have several caches in a node, a cache that
// several nodes share, nodes without CPUs, or CPUs of unequal speed.
var plantedHosts = []string{"two-by-96", "sub-numa", "eight", "modules", "no-shared-cache", "hybrid", "two-socket", "memoryless", "cpuless", "nps4"}

// fact returns the factor by which a cell costs more: it multiplies the times of the cell and divides its rates. The
// factor is 1 for a cell that the fact does not concern.
type fact func(t *topology.Topology, c *bench.Cell, cpus []int) float64

// noise returns the noise of one repetition. It is log-normal, with an outlier in one of twenty repetitions.
func noise(rng *rand.Rand) float64 {
	f := math.Exp(0.02 * rng.NormFloat64())
	if rng.Float64() < 0.05 {
		f *= 1 + 0.5*rng.Float64()
	}
	return f
}

// plannedCells returns the cells of the default plan of a recorded host.
func plannedCells(t *testing.T, name string) (*plan.Options, []*bench.Cell) {
	t.Helper()
	return cellsOf(t, name, plan.DefaultSuite)
}

// cellsOf returns the cells of a suite on a recorded host.
func cellsOf(t *testing.T, name string, p plan.Preset) (*plan.Options, []*bench.Cell) {
	t.Helper()
	o := &plan.Options{Recording: topotest.File(name + ".tree"), Time: p.Time, Warmup: p.Warmup,
		Count: p.Count, Kills: p.Kills, Gap: plan.UsualGap, Timeout: 1, Seed: 1}
	require.NoError(t, o.Complete(nil, nil))
	cells, err := p.Plan(o, true)
	require.NoError(t, err)
	return o, cells
}

// planted returns a document with results of a plan in which the facts hold.
func planted(o *plan.Options, cells []*bench.Cell, seed uint64, facts ...fact) *Document {
	rng := rand.New(rand.NewPCG(seed, 11))
	top := o.Topology
	d := &Document{Schema: Schema, Topology: top, Env: host.Environment{CPU: "bare metal", CPUs: len(top.CPUs), Used: o.CPUs, Nodes: len(top.Nodes)}}
	for _, c := range cells {
		if c.Skip != "" || c.Scenario.Name == "matrix" && c.MaxReps > 0 { // no rule uses the matrix of all pairs
			continue
		}
		var cpus []int
		for slot := range c.Slots() {
			cpus = append(cpus, c.CPUOf(slot, o.CPUs))
		}
		factor := 1.0
		for _, f := range facts {
			factor *= f(top, c, cpus)
		}
		metrics := map[string][]float64{}
		rounds := o.Count
		if c.MaxReps > 0 {
			rounds = min(rounds, c.MaxReps)
		}
		for range rounds {
			draw := factor * noise(rng)
			for name, v := range map[string]float64{c.Scenario.Unit: 1000 * draw, "p99-ns": 5000 * draw, "max-ns": 9000 * draw,
				"chase-ns": 100 * draw, "waker-p50-ns": 300 * noise(rng), "jain": 1, "min-share": 1, "slept": 1, "in-place": 1, "as-asked-%": 100, "MB/s": 1e4 / draw} {
				metrics[name] = append(metrics[name], v)
			}
			if bench.BetterHigher[c.Scenario.Unit] {
				metrics[c.Scenario.Unit][len(metrics[c.Scenario.Unit])-1] = 1e6 / draw
			}
			metrics["scan-MB/s"] = append(metrics["scan-MB/s"], 1e4/draw)
		}
		d.add(c.Scenario.Name, c.Subject.Name(), c.Params(), metrics)
		d.ranOn(1, cpus...)
	}
	return d
}

// timed returns the advice to prefer a faster choice. It omits R1 and R10, which only report figures, and R11, which is
// about settings of the host.
func timed(all []advice) (list []advice) {
	for _, a := range all {
		if a.Verdict == adviceDo && a.Rule != "R1" && a.Rule != "R10" && a.Rule != "R11" {
			list = append(list, a)
		}
	}
	return list
}

// TestNullDataGivesNoAdvice checks results in which all cells cost the same: at most one file in twenty leads to
// advice.
func TestNullDataGivesNoAdvice(t *testing.T) {
	for _, name := range plantedHosts {
		o, cells := plannedCells(t, name)
		with := 0
		var said []string
		seeds := proctest.Rounds(5, 20)
		for seed := range uint64(seeds) {
			if list := timed(Recommend(planted(o, cells, seed))); len(list) > 0 {
				with++
				said = append(said, list[0].Rule+" "+list[0].Text)
			}
		}
		require.LessOrEqual(t, with, seeds/20, "%s: %q", name, said)
	}
}

// among reports whether the first two CPUs of a cell are of a class.
func among(t *topology.Topology, cpus []int, base topology.Class) bool {
	return len(cpus) > 1 && cpus[0] >= 0 && cpus[1] >= 0 && t.Class(cpus[0], cpus[1]).Base() == base
}

// TestPlantedFactsAreFound checks that the advice reports each planted fact, with its CPUs and nodes. No other rule may
// give advice that the fact does not explain.
func TestPlantedFactsAreFound(t *testing.T) {
	distant := func(scenario string, factor float64, bases ...topology.Class) fact {
		return func(top *topology.Topology, c *bench.Cell, cpus []int) float64 {
			for _, base := range bases {
				if c.Scenario.Name == scenario && among(top, cpus, base) {
					return factor
				}
			}
			return 1
		}
	}
	cohort := func(top *topology.Topology, c *bench.Cell, cpus []int) float64 {
		nodes := map[int]bool{}
		for _, id := range cpus {
			if cpu, ok := top.CPU(id); ok {
				nodes[cpu.Node] = true
			}
		}
		if c.Scenario.Name == "lock" && c.Subject.Name() == "shmsync:mutex-cohort" && len(nodes) > 1 && len(cpus) >= 16 {
			return 1 / 1.6
		}
		return 1
	}
	slow := func(node int) fact {
		return func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
			if c.Mem != nil && c.Mem.PolicyName() == fmt.Sprintf("bind:%d", node) {
				return 1.5
			}
			return 1
		}
	}
	interleave := func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
		if c.Mem != nil && strings.Contains(c.Mem.PolicyName(), "interleave") {
			return 1.6
		}
		return 1
	}
	for _, f := range []struct {
		name, host, rule string
		text             []string
		allowed          string // other rules that may give advice because of the fact
		facts            []fact
	}{
		{"L3 locality", "two-by-96", "R2", []string{"last-level cache of one node, as on CPUs 8-15,200-207:"}, "",
			[]fact{distant("matrix", 2, topology.SameNode, topology.Package, topology.Remote)}},
		{"package locality", "two-by-96", "R2", []string{"within one package, as on CPUs 0-95,192-287:"}, "",
			[]fact{distant("matrix", 2, topology.Remote)}},
		{"sub-NUMA split", "sub-numa", "R2", []string{"last-level cache of one node, as on CPUs 4-7,20-23:"}, "",
			[]fact{distant("matrix", 2, topology.LLCNode, topology.Remote)}},
		{"modules", "modules", "R2", []string{"group of cores with a common cache, as on CPUs 4-7:"}, "",
			[]fact{distant("matrix", 2, topology.SameLLC, topology.Remote)}},
		{"wake cost by distance", "two-by-96", "R12", []string{"within the package of its producer", "remote-32", "CPUs 0-95,192-287"}, "R1",
			[]fact{distant("wake", 1.5*farther, topology.Remote)}},
		{"SMT penalty", "two-by-96", "R13", []string{"CPUs 0-191:"}, "R6",
			[]fact{distant("lock", 1.6, topology.SMT)}},
		{"a cohort lock that wins", "two-by-96", "R6", []string{"use mutex-cohort for locks with"}, "", []fact{cohort}},
		{"slow node", "eight", "R14", []string{"off node 7:"}, "R3 R4", []fact{slow(7)}},
		{"slow memory-only node", "memoryless", "R3", []string{"place the arena on node 1"}, "R4 R14", []fact{slow(0), slow(3)}},
		{"a lock far from its users", "two-by-96", "R16", []string{"on a node of the processes that use it", "holds a second there"}, "",
			[]fact{func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
				if c.Home == bench.HomeThird {
					return 1.5
				}
				return 1
			}}},
		{"a bad interleave", "sub-numa", "R4", []string{"do not spread data over the nodes"}, "", []fact{interleave}},
		{"all together", "two-by-96", "R2", []string{"8-15,200-207"}, "R4 R6 R12 R13",
			[]fact{distant("matrix", 2, topology.SameNode, topology.Package, topology.Remote), distant("wake", 1.8, topology.Remote), distant("lock", 1.6, topology.SMT), cohort, interleave}},
	} {
		o, cells := plannedCells(t, f.host)
		found, wrong := 0, []string{}
		seeds := proctest.Rounds(5, 20)
		for seed := range uint64(seeds) {
			right := false
			for _, a := range timed(Recommend(planted(o, cells, seed, f.facts...))) {
				switch {
				case a.Rule == f.rule:
					right = true
					for _, text := range f.text {
						right = right && strings.Contains(a.Text, text)
					}
					if !right {
						wrong = append(wrong, a.Text)
					}
				case !strings.Contains(f.allowed, a.Rule):
					wrong = append(wrong, a.Rule+" "+a.Text)
				}
			}
			if right {
				found++
			}
		}
		require.GreaterOrEqual(t, found, seeds*19/20, "%s: %q", f.name, wrong)
		require.LessOrEqual(t, len(wrong), 1, "%s: %q", f.name, wrong)
	}
}

// TestCohortAdviceNeedsProof checks that the report recommends a cohort lock only if it is faster, and only if the
// measured threads stayed on their CPUs.
func TestCohortAdviceNeedsProof(t *testing.T) {
	o, cells := plannedCells(t, "two-by-96")
	gains := func(by float64) fact {
		return func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
			if c.Subject.Name() == "shmsync:mutex-cohort" {
				return by
			}
			return 1
		}
	}
	d := planted(o, cells, 1, gains(1/1.8))
	require.Equal(t, adviceDo, adviceOf(t, d, "R6").Verdict)
	for i := range d.Cells {
		for _, r := range d.Cells[i].Reps {
			r.Metrics["in-place"] = 0.8
		}
	}
	require.NotEqual(t, adviceDo, adviceOf(t, d, "R6").Verdict)
	require.NotEqual(t, adviceDo, adviceOf(t, planted(o, cells, 1, gains(1.5)), "R6").Verdict)
}

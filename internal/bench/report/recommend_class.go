//go:build linux

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// classCells returns the cells of a scenario and subject that were placed by class, from the nearest
// class to the farthest. It leaves out threads of one core. Of classes that differ only in the kinds of
// CPUs, it returns the first.
func (d *Document) classCells(scenario string, conditions ...func(*Cell) bool) (list []*Cell) {
	for _, c := range d.find(scenario, conditions...) {
		if class := c.class(); class.Valid() && class.Base() != topology.SMT {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b *Cell) int { return topology.CompareClasses(a.class(), b.class()) })
	return slices.CompactFunc(list, func(a, b *Cell) bool { return withoutKinds(a.class()) == withoutKinds(b.class()) })
}

func (c *Cell) class() topology.Class { return topology.Class(c.Params["place"]) }

func withoutKinds(c topology.Class) topology.Class {
	name, _, _ := strings.Cut(string(c), ":")
	return topology.Class(name)
}

// border is the distance of CPUs at which a cost grows.
type border struct {
	near, far *Cell // the last class before the border, and the first one beyond it
	effect    stats.Interval
}

// findBorder returns the first class that surely costs least times as much as the slowest nearer
// class.
func findBorder(cells []*Cell, metric string, least float64) (b border, ok bool) {
	for i := 1; i < len(cells); i++ {
		slowest := cells[0]
		for _, c := range cells[1:i] {
			if stats.Median(c.Values(metric)) > stats.Median(slowest.Values(metric)) {
				slowest = c
			}
		}
		if q, err := gain(slowest, cells[i], metric); err == nil && sure(q, least) {
			return border{cells[i-1], cells[i], q}, true
		}
	}
	return b, false
}

// domain lists the used CPUs that are no farther from a CPU than a class.
func (d *Document) domain(cpu int, class topology.Class) (cpus []int) {
	for _, id := range d.Env.Used {
		if id == cpu || topology.CompareClasses(withoutKinds(d.Topology.Class(cpu, id)), withoutKinds(class)) <= 0 {
			cpus = append(cpus, id)
		}
	}
	return cpus
}

// domainName says what the CPUs of a domain share. near is the last class inside the domain.
func domainName(near topology.Class) string {
	switch near.Base() {
	case topology.Module:
		return "group of cores with a common cache"
	case topology.SameLLC:
		return "last-level cache of one node"
	case topology.LLCNode:
		return "last-level cache"
	case topology.SameNode:
		return "node of one package"
	case topology.NodePackage:
		return "node"
	case topology.Package:
		return "package"
	}
	return "group of nodes as near as " + string(near)
}

// firstCPU is a CPU of the cell, or -1 if it is not known.
func (c *Cell) firstCPU() int {
	for _, r := range c.Reps {
		if len(r.Workers) > 0 {
			return r.Workers[0].CPU
		}
	}
	return -1
}

// adviseClasses is R2 for cells of classes: the smallest domain beyond which a cache line costs far
// more.
func adviseClasses(d *Document) *advice {
	cells := d.classCells("matrix", by("go:one-line"))
	if d.Topology == nil || len(cells) < 2 {
		return nil
	}
	a := &advice{Verdict: adviceNone, Text: fmt.Sprintf("no class of CPUs is surely farther than the nearer ones by %.1f", farther)}
	for _, c := range cells {
		a.Evidence = append(a.Evidence, c.evidence("p50-ns"))
	}
	b, ok := findBorder(cells, "p50-ns", farther)
	if !ok {
		return a
	}
	cpu := b.near.firstCPU()
	if cpu < 0 {
		return nil
	}
	list := topology.FormatList(d.domain(cpu, b.near.class()))
	a.Verdict, a.Effect = adviceDo, &b.effect
	a.Text = fmt.Sprintf("keep processes that share a lock within one %s, as on CPUs %s: %s one way there, %s for the class %s", domainName(b.near.class()), list,
		asTime(stats.Median(b.near.Values("p50-ns"))), asTime(stats.Median(b.far.Values("p50-ns"))), b.far.class())
	a.Do = []string{"taskset -c " + list + " PROGRAM, or cpuset.cpus=" + list}
	return a
}

// adviseWakes is R12: where to run a peer that is woken.
func adviseWakes(d *Document) *advice {
	var top *advice
	for _, gap := range d.find("wake", by("shmsync:futex"), asleep) {
		cells := d.classCells("wake", by("shmsync:futex"), asleep, with("gap", gap.Params["gap"]))
		if d.Topology == nil || len(cells) < 2 || top != nil && top.Verdict == adviceDo {
			continue
		}
		a := &advice{Verdict: adviceNone, Text: fmt.Sprintf("no class of CPUs is surely slower to wake by %.1f", farther)}
		for _, c := range cells {
			a.Evidence = append(a.Evidence, c.evidence("p50-ns"))
		}
		if b, ok := findBorder(cells, "p50-ns", farther); ok && b.near.firstCPU() >= 0 {
			list := topology.FormatList(d.domain(b.near.firstCPU(), b.near.class()))
			a.Verdict, a.Effect = adviceDo, &b.effect
			a.Text = fmt.Sprintf("run a consumer that sleeps within the %s of its producer, as on CPUs %s: a wake takes %s there, %s for the class %s",
				domainName(b.near.class()), list, asTime(stats.Median(b.near.Values("p50-ns"))), asTime(stats.Median(b.far.Values("p50-ns"))), b.far.class())
			a.Do = []string{"taskset -c " + list + " PROGRAM"}
		}
		top = a
	}
	return top
}

// smtCost is the least cost of a shared core that leads to advice (R13).
const smtCost = 1.1

// adviseSMT is R13: whether two workers of a lock should share a core.
func adviseSMT(d *Document) *advice {
	for _, smt := range d.find("lock", by("shmsync:mutex"), func(c *Cell) bool { return c.class().Base() == topology.SMT }) {
		cells := d.classCells("lock", by("shmsync:mutex"), alike(smt, "place"))
		if d.Topology == nil || len(cells) == 0 {
			continue
		}
		near := cells[0]
		a := &advice{Verdict: adviceNone, Evidence: []string{smt.evidence("ops/s"), near.evidence("ops/s")},
			Text: "two workers on threads of one core do not surely get less through than on two cores"}
		if q, err := gain(near, smt, "ops/s"); err == nil && sure(q, smtCost) {
			var first []int
			for _, core := range d.Topology.Groups(d.Env.Used, topology.ByCore) {
				first = append(first, core[0])
			}
			slices.Sort(first)
			list := topology.FormatList(first)
			a.Verdict, a.Effect = adviceDo, &q
			a.Text = fmt.Sprintf("give each worker of a lock a core of its own, CPUs %s: two cores of the class %s get %s× as much through as two threads of a core",
				list, near.class(), formatRatio(q.Center))
			a.Do = []string{"taskset -c " + list + " PROGRAM"}
		}
		return a
	}
	return nil
}

// slowNode is how many times slower than comparable memory the memory of a node must be to be
// named (R14).
const slowNode = 1.15

// adviseSlowNode is R14: a node whose memory is slower than that of other nodes at the same
// distance.
func adviseSlowNode(d *Document) *advice {
	type sight struct {
		rounds map[int]float64
		cell   *Cell
	}
	byDistance := map[int]map[int][]sight{} // by distance and by node of the memory
	for _, c := range d.chased("bind:") {
		from, _ := strconv.Atoi(c.Params["node"])
		to, err := strconv.Atoi(strings.TrimPrefix(c.Params["mem"], "bind:"))
		if err != nil || d.Topology == nil {
			continue
		}
		distance := d.Topology.Distance(from, to)
		if byDistance[distance] == nil {
			byDistance[distance] = map[int][]sight{}
		}
		byDistance[distance][to] = append(byDistance[distance][to], sight{c.byRound(memChaseMetric), c})
	}
	var top *advice
	if d.Topology != nil && len(byDistance) > 0 && len(d.Topology.Nodes) < 2 {
		return &advice{Verdict: adviceMoot, Text: "one NUMA node: its memory cannot be compared with other memory"}
	}
	for _, nodes := range byDistance {
		for node, mine := range nodes {
			var q stats.Interval
			worst := true
			var evidence []string
			for other, theirs := range nodes {
				if other == node {
					continue
				}
				r, err := roundRatio(joined(mine, func(s sight) map[int]float64 { return s.rounds }), joined(theirs, func(s sight) map[int]float64 { return s.rounds }))
				if err != nil || !sure(r, slowNode) {
					worst = false
					break
				}
				if q.N == 0 || r.Center < q.Center {
					q = r
				}
				evidence = append(evidence, theirs[0].cell.evidence(memChaseMetric))
			}
			if top == nil {
				top = &advice{Verdict: adviceNone, Text: fmt.Sprintf("no node's memory is surely slower by %.0f %% than that of others at the same distance", 100*(slowNode-1))}
			}
			if worst && q.N > 0 && (top.Effect == nil || q.Center > top.Effect.Center) {
				slices.Sort(evidence)
				top = &advice{Verdict: adviceDo, Effect: &q, Evidence: append([]string{mine[0].cell.evidence(memChaseMetric)}, evidence...),
					Text: fmt.Sprintf("keep locks and data off node %d: its memory is slower than that of nodes at the same distance", node),
					Do:   []string{fmt.Sprintf("name other nodes in policies; numactl --membind=^%d", node)}}
			}
		}
	}
	return top
}

// joined returns the mean of several cells in each round that all of them have.
func joined[T any](list []T, rounds func(T) map[int]float64) map[int]float64 {
	sums, counts := map[int]float64{}, map[int]int{}
	for _, s := range list {
		for i, v := range rounds(s) {
			sums[i] += v
			counts[i]++
		}
	}
	for i, n := range counts {
		if n < len(list) {
			delete(sums, i)
			continue
		}
		sums[i] /= float64(n)
	}
	return sums
}

// inPlaceLeast is the least share of samples in which threads must have been on the CPUs of the
// plan (R6).
const inPlaceLeast = 0.99

// proven reports whether a lock cell has enough contenders on several nodes, and whether it is proven
// that they ran there. A contender is a CPU: goroutines that share a CPU count as one.
func (c *Cell) proven(t *topology.Topology) (enough bool, doubt string) {
	nodes := map[int]map[int]bool{}
	for _, r := range c.Reps {
		if r.Status != bench.StatusOK {
			continue
		}
		if share, ok := r.Metrics["in-place"]; !ok || share < inPlaceLeast {
			doubt = "nobody tells where its threads ran"
			if ok {
				doubt = fmt.Sprintf("its threads were on other CPUs in %.1f %% of the samples", 100*(1-share))
			}
		}
		for _, w := range r.Workers {
			if cpu, ok := t.CPU(w.CPU); ok {
				if nodes[cpu.Node] == nil {
					nodes[cpu.Node] = map[int]bool{}
				}
				nodes[cpu.Node][w.CPU] = true
			}
		}
	}
	crowded := 0
	for _, cpus := range nodes {
		if len(cpus) >= cohortCrowd {
			crowded++
		}
	}
	return crowded >= 2, doubt
}

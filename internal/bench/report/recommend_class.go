//go:build linux

package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// classCells returns a cell of a scenario for each class of pairs of CPUs, from the nearest class to the farthest. It
// considers only cells that satisfy the conditions, and no pairs of threads of one core. Classes that differ only in
// the kinds of CPUs count as one class.
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

// findBorder returns the first comparison in list that is proven, or nil. In a result of the function borders, this is
// the nearest class of pairs of CPUs that costs more than all nearer classes.
func findBorder(list []*contrast) *contrast {
	if i := slices.IndexFunc(list, (*contrast).sure); i >= 0 {
		return list[i]
	}
	return nil
}

// domain returns the CPUs of the run that are near the given CPU. A CPU is near if the class of the two CPUs is the
// given class or a nearer class.
func (d *Document) domain(cpu int, class topology.Class) (cpus []int) {
	for _, id := range d.Env.Used {
		if id == cpu || topology.CompareClasses(withoutKinds(d.Topology.Class(cpu, id)), withoutKinds(class)) <= 0 {
			cpus = append(cpus, id)
		}
	}
	return cpus
}

// domainName names what all CPUs of a domain share, such as a cache or a node. A domain is a set of CPUs that are near
// each other. The parameter near is the class of the two CPUs of the domain that are farthest apart.
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

// firstCPU returns a CPU on which the cell was measured, or -1 if none is known.
func (c *Cell) firstCPU() int {
	for _, r := range c.Reps {
		if len(r.Workers) > 0 {
			return r.Workers[0].CPU
		}
	}
	return -1
}

// adviseClasses is rule R2 for matrix measurements with one pair of CPUs for each class. It looks for the smallest
// group of CPUs for which passing a cache line within the group is much cheaper than passing it to other CPUs.
func adviseClasses(d *Document, list []*contrast) *advice {
	cells := d.mappedClasses()
	if len(cells) < 2 {
		return nil
	}
	a := &advice{Verdict: adviceNone, Text: fmt.Sprintf("no class of CPUs is surely farther than the nearer ones by %.1f", farther)}
	for _, c := range cells {
		a.Evidence = append(a.Evidence, c.evidence("p50-ns"))
	}
	b := findBorder(list)
	if b == nil {
		return a
	}
	cpu := b.better.firstCPU()
	if cpu < 0 {
		return nil
	}
	a.cpus = d.domain(cpu, b.better.class())
	cpus := topology.FormatList(a.cpus)
	a.Verdict, a.Effect = adviceDo, b.effectOf()
	a.Text = fmt.Sprintf("keep processes that share a lock within one %s, as on CPUs %s: %s one way there, %s for the class %s", domainName(b.better.class()), cpus,
		asTime(stats.Median(b.better.Values("p50-ns"))), asTime(stats.Median(b.worse.Values("p50-ns"))), b.worse.class())
	a.Do = []string{"taskset -c " + cpus + " PROGRAM, or cpuset.cpus=" + cpus}
	return a
}

// mappedClasses returns the matrix cells that measure a class of pairs of CPUs.
func (d *Document) mappedClasses() []*Cell {
	if d.Topology == nil {
		return nil
	}
	return d.classCells("matrix", by("go:one-line"))
}

// wakeLines returns a list of wake cells for each gap, that is, for each time for which the waiter sleeps before the
// wake. A list has one cell for each class of pairs of CPUs, from the nearest class to the farthest.
func (d *Document) wakeLines() (lines [][]*Cell) {
	seen := map[string]bool{}
	for _, gap := range d.find("wake", by("shmsync:futex"), asleep) {
		cells := d.classCells("wake", by("shmsync:futex"), asleep, with("gap", gap.Params["gap"]))
		if d.Topology != nil && len(cells) > 1 && !seen[gap.Params["gap"]] {
			seen[gap.Params["gap"]] = true
			lines = append(lines, cells)
		}
	}
	return lines
}

// wakeContrasts returns the comparisons that rule R12 needs.
func wakeContrasts(d *Document) (list []*contrast) {
	for _, cells := range d.wakeLines() {
		list = append(list, borders(cells, "p50-ns", farther)...)
	}
	return list
}

// adviseWakes is rule R12: where to run a thread that sleeps until another thread wakes it.
func adviseWakes(d *Document, list []*contrast) *advice {
	var top *advice
	for _, cells := range d.wakeLines() {
		if top != nil && top.Verdict == adviceDo {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(list), func(c *contrast) bool { return !slices.Contains(cells, c.worse) })
		a := &advice{Verdict: adviceNone, Text: fmt.Sprintf("no class of CPUs is surely slower to wake by %.1f", farther)}
		for _, c := range cells {
			a.Evidence = append(a.Evidence, c.evidence("p50-ns"))
		}
		if b := findBorder(own); b != nil && b.better.firstCPU() >= 0 {
			cpus := topology.FormatList(d.domain(b.better.firstCPU(), b.better.class()))
			a.Verdict, a.Effect = adviceDo, b.effectOf()
			a.Text = fmt.Sprintf("run a consumer that sleeps within the %s of its producer, as on CPUs %s: a wake takes %s there, %s for the class %s",
				domainName(b.better.class()), cpus, asTime(stats.Median(b.better.Values("p50-ns"))), asTime(stats.Median(b.worse.Values("p50-ns"))), b.worse.class())
			a.Do = []string{"taskset -c " + cpus + " PROGRAM"}
		}
		top = a
	}
	return top
}

// smtCost is the least slowdown of two workers on one core for which rule R13 advises to run them on two cores.
const smtCost = 1.1

// smtContrasts returns the only comparison that rule R13 needs.
func smtContrasts(d *Document) []*contrast {
	for _, smt := range d.find("lock", by("shmsync:mutex"), func(c *Cell) bool { return c.class().Base() == topology.SMT }) {
		if cells := d.classCells("lock", by("shmsync:mutex"), alike(smt, "place")); d.Topology != nil && len(cells) > 0 {
			return []*contrast{contrastOf("smt", cells[0], smt, "ops/s", smtCost)}
		}
	}
	return nil
}

// adviseSMT is rule R13: whether two workers that share a lock should share a core.
func adviseSMT(d *Document, list []*contrast) *advice {
	if len(list) == 0 {
		return nil
	}
	c := list[0]
	near, smt := c.better, c.worse
	a := &advice{Verdict: adviceNone, Effect: c.effectOf(), Evidence: []string{smt.evidence("ops/s"), near.evidence("ops/s")},
		Text: "two workers on threads of one core do not surely get less through than on two cores"}
	if c.sure() {
		var first []int
		for _, core := range d.Topology.Groups(d.Env.Used, topology.ByCore) {
			first = append(first, core[0])
		}
		slices.Sort(first)
		cpus := topology.FormatList(first)
		a.Verdict = adviceDo
		a.Text = fmt.Sprintf("give each worker of a lock a core of its own, CPUs %s: two cores of the class %s get %s× as much through as two threads of a core",
			cpus, near.class(), formatRatio(c.Center))
		a.Do = []string{"taskset -c " + cpus + " PROGRAM"}
	}
	return a
}

// slowNode is the least ratio for which rule R14 calls a NUMA node slow: the latency of its memory divided by the
// latency of the memory of another node at the same distance.
const slowNode = 1.15

// reach returns the cells that measure the latency of loads from the memory of one NUMA node. It groups them by the
// distance from the CPUs to the memory, and then by the node of the memory.
func (d *Document) reach() (byDistance map[int]map[int][]*Cell) {
	byDistance = map[int]map[int][]*Cell{}
	if d.Topology == nil {
		return byDistance
	}
	for _, c := range d.chased("bind:") {
		from, _ := strconv.Atoi(c.Params["node"])
		to, err := strconv.Atoi(strings.TrimPrefix(c.Params["mem"], "bind:"))
		if err != nil {
			continue
		}
		distance := d.Topology.Distance(from, to)
		if byDistance[distance] == nil {
			byDistance[distance] = map[int][]*Cell{}
		}
		byDistance[distance][to] = append(byDistance[distance][to], c)
	}
	return byDistance
}

// slowContrasts returns the comparisons for rule R14. It compares each NUMA node with each other node. For such a pair
// of nodes, it takes the mean latency over all distances at which both nodes were measured, because a slow node is slow
// from everywhere.
func slowContrasts(d *Document) (list []*contrast) {
	byDistance := d.reach()
	reached := map[int]bool{}
	for _, nodes := range byDistance {
		for node := range nodes {
			reached[node] = true
		}
	}
	for _, node := range slices.Sorted(maps.Keys(reached)) {
		c := &contrast{name: strconv.Itoa(node), at: node, least: slowNode}
		for _, other := range slices.Sorted(maps.Keys(reached)) {
			var mine, theirs []map[int]float64
			for _, distance := range slices.Sorted(maps.Keys(byDistance)) {
				nodes := byDistance[distance]
				if other != node && len(nodes[node]) > 0 && len(nodes[other]) > 0 {
					mine, theirs = append(mine, joined(nodes[node], chaseRounds)), append(theirs, joined(nodes[other], chaseRounds))
					c.worse, c.better = nodes[node][0], nodes[other][0]
				}
			}
			if len(mine) > 0 {
				same := func(rounds map[int]float64) map[int]float64 { return rounds }
				c.against(joined(mine, same), joined(theirs, same))
			}
		}
		if c.worse != nil {
			list = append(list, c)
		}
	}
	return list
}

// chaseRounds returns the latency of loads that a cell measured, by round.
func chaseRounds(c *Cell) map[int]float64 { return c.byRound(memChaseMetric) }

// adviseSlowNode is rule R14. It finds a NUMA node whose memory is slower than that of other nodes at the same
// distance.
func adviseSlowNode(d *Document, list []*contrast) *advice {
	if len(d.reach()) == 0 {
		return nil
	}
	if len(d.Topology.Nodes) < 2 {
		return &advice{Verdict: adviceMoot, Text: "one NUMA node: its memory cannot be compared with other memory"}
	}
	if len(list) == 0 {
		return &advice{Verdict: adviceMoot, Text: "no two nodes at the same distance were measured"}
	}
	top := &advice{Verdict: adviceNone, Text: fmt.Sprintf("no node's memory is surely slower by %.0f %% than that of others at the same distance", 100*(slowNode-1))}
	for _, c := range list {
		if c.sure() && (top.Effect == nil || c.Center > top.Effect.Center) {
			top = &advice{Verdict: adviceDo, Effect: c.effectOf(), Evidence: []string{c.worse.evidence(memChaseMetric), c.better.evidence(memChaseMetric)},
				Text: fmt.Sprintf("keep locks and data off node %d: its memory is slower than that of nodes at the same distance", c.at),
				Do:   []string{fmt.Sprintf("name other nodes in policies; numactl --membind=^%d", c.at)}}
		}
	}
	return top
}

// joined returns, for each round, the mean of the figures of all items of list. The function rounds returns the figures
// of one item. A round counts only if all items have a figure of it.
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

// inPlaceLeast is a limit for rule R6. During a measurement, each thread checks repeatedly whether it runs on the CPU
// of the plan. It must have been there in at least this share of the checks.
const inPlaceLeast = 0.99

// proven reports whether a lock cell had at least cohortCrowd contenders on each of two NUMA nodes. Goroutines that
// share a CPU count as one contender. If the workers may have run on other CPUs than planned, the result doubt says
// why.
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

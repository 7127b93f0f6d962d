//go:build linux

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// widest is a limit for rule R1. The rule gives no spin budget if the highest repetition of the figure is more than
// widest times the lowest.
const widest = 2.0

// adviseSpin is rule R1: how long waiters should spin before they sleep. The advice is to spin for as long as a sleep
// costs the waiter and the waker together. With this spin budget, a wait costs at most twice as much as with the best
// budget for this wait.
func adviseSpin(d *Document, _ []*contrast) *advice {
	cells := d.find("wake", by("shmsync:futex"), asleep, func(c *Cell) bool { return c.Params["place"] != bench.PlaceSame && c.Params["place"] != bench.PlaceAny })
	c := best(longest(cells), "p50-ns")
	if c == nil || len(c.Values("waker-p50-ns")) == 0 {
		return nil
	}
	if few := d.Rounds.few(); few != "" && len(c.byRound("waker-p50-ns")) < fewest {
		return &advice{Verdict: adviceUndecided, Text: "leave it to each object to learn (Spin: 0); " + few, Evidence: []string{c.evidence("p50-ns"), c.evidence("waker-p50-ns")}}
	}
	waker := c.byRound("waker-p50-ns")
	var budgets []float64
	for i, wake := range c.byRound("p50-ns") {
		if v, ok := waker[i]; ok {
			budgets = append(budgets, wake+v)
		}
	}
	if len(budgets) == 0 {
		return nil
	}
	v := stats.Summarize(budgets)
	a := &advice{Effect: &v, Unit: "ns", Evidence: append([]string{c.evidence("p50-ns"), c.evidence("waker-p50-ns")}, crowded(d)...)}
	if v.Hi > widest*v.Lo || v.N < fewest {
		a.Verdict = adviceNone
		a.Text = fmt.Sprintf("leave it to each object to learn (Spin: 0): a sleep cost %s to %s in %d repetitions", asTime(v.Lo), asTime(v.Hi), v.N)
		return a
	}
	budget := max(time.Duration(v.Center).Round(time.Microsecond).Microseconds(), 1)
	a.Verdict = adviceDo
	a.Text = fmt.Sprintf("spin for %s at most: a sleep costs as much (%s until the waiter runs, and %s of the process that wakes it). Objects learn by "+
		"themselves whether spinning pays. The lines are for a new object, for one that exists, and for more waiters than the %d CPUs, which should never spin",
		asTime(v.Center), asTime(stats.Median(c.Values("p50-ns"))), asTime(stats.Median(c.Values("waker-p50-ns"))), len(d.Env.Used))
	a.Do = []string{ // a test pastes these lines into examples/spin
		fmt.Sprintf("opts := &prims.MutexOptions{Spin: %d * time.Microsecond}", budget),
		fmt.Sprintf("m.SetSpin(%d * time.Microsecond)", budget),
		"m.SetSpin(-1)",
	}
	return a
}

// longest omits cells that have less than half as many undisturbed rounds as the cell with the most. A suite measures
// some cells in so few rounds that their figures must not become a setting.
func longest(cells []*Cell) []*Cell {
	most := 0
	for _, c := range cells {
		most = max(most, len(c.byRound(c.Unit)))
	}
	return slices.DeleteFunc(slices.Clone(cells), func(c *Cell) bool { return 2*len(c.byRound(c.Unit)) < most })
}

// asleep reports whether the waiters of a wake cell were nearly always asleep in the kernel. With a short gap, waiters
// still spin when the wake comes, and the figure is not the time of a wake.
func asleep(c *Cell) bool {
	const nearly = 0.9
	slept := c.Values("slept")
	return len(slept) == 0 || stats.Median(slept) >= nearly
}

// crowded returns a text for each measurement with more workers than CPUs in which a fixed spin budget has clearly more
// throughput than the budget that the library learns.
func crowded(d *Document) (list []string) {
	const much = 1.1
	for _, c := range d.find("oversub", by("shmsync:mutex"), with("spin", "auto")) {
		top := best(d.find("oversub", by("shmsync:mutex"), alike(c, "spin")), "ops/s")
		if q, err := gain(top, c, "ops/s"); err == nil && top != c && exceeds(q, much) {
			list = append(list, fmt.Sprintf("with %s workers for each CPU, spin=%s lets through %s of what learning does  %s", c.Params["load"], top.Params["spin"], effectText(q), c.group("spin", "load")))
		}
	}
	return list
}

// farther is the least ratio for which rules R2 and R12 advise to stay within a group of CPUs: the time between CPUs of
// different groups divided by the time between CPUs of the same group.
const farther = 1.3

// sameGood is a limit for rule R2. If the gains of two ways to group the CPUs differ by a smaller factor, the rule
// treats the two ways as equally good.
const sameGood = 1.05

// partition is a way to divide the CPUs of a matrix into groups.
type partition struct {
	name   string // name of one group
	groups [][]int
}

// partitions returns the ways to divide the CPUs of a matrix into groups: by the caches, NUMA nodes and packages that
// the host reports, and by the clusters that the measurement shows. It omits a way with one group, or with one group
// for each CPU.
func partitions(m *pairs, t *topology.Topology) (list []partition) {
	if t != nil {
		for _, p := range []struct {
			name string
			key  func(topology.CPU) int
		}{{"last-level cache", topology.ByLLC}, {"NUMA node", topology.ByNode}, {"package", topology.ByPackage}} {
			list = append(list, partition{p.name, place.Parts(t, m.cpus, p.key)})
		}
	}
	for _, level := range m.clusters() {
		list = append(list, partition{"measured cluster", level})
	}
	return slices.DeleteFunc(list, func(p partition) bool { return len(p.groups) < 2 || len(p.groups) == len(m.cpus) })
}

// divided has the medians of a matrix whose CPUs were divided into groups. For each round, the field in has the median
// of the pairs within a group, and the field out has the median of the other pairs.
type divided struct {
	partition
	in, out map[int]float64
	nearest []int // the group whose CPUs are nearest to each other
	within  float64
}

// divide computes, for each round, the median of the pairs of CPUs within a group, and the median of the pairs between
// groups. It omits pairs of threads of one core, which are near each other but slow each other down.
func (m *pairs) divide(p partition, t *topology.Topology) *divided {
	part := map[int]int{}
	for i, g := range p.groups {
		for _, cpu := range g {
			part[cpu] = i
		}
	}
	in, out := map[int][]float64{}, map[int][]float64{}
	within := map[int][]float64{}
	for pair, rounds := range m.reps {
		if t != nil && t.Class(pair[0], pair[1]).Base() == topology.SMT {
			continue
		}
		a, b := part[pair[0]], part[pair[1]]
		to := out
		if a == b {
			to = in
			within[a] = append(within[a], m.value(pair[0], pair[1]))
		}
		for i, v := range rounds {
			to[i] = append(to[i], v)
		}
	}
	if len(in) == 0 || len(out) == 0 {
		return nil
	}
	d := &divided{partition: p, in: medians(in), out: medians(out), within: math.Inf(1)}
	for i, g := range p.groups {
		if vs := within[i]; len(vs) > 0 && stats.Median(vs) < d.within {
			d.nearest, d.within = g, stats.Median(vs)
		}
	}
	return d
}

func medians(m map[int][]float64) map[int]float64 {
	all := map[int]float64{}
	for i, vs := range m {
		all[i] = stats.Median(vs)
	}
	return all
}

func valuesOf(m map[int]float64) (list []float64) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

// adviseColocate is rule R2: run processes that communicate on CPUs that are near each other, if a cache line gets
// to near CPUs much faster than to other CPUs.
func adviseColocate(d *Document, list []*contrast) *advice {
	if a := adviseClasses(d, list); a != nil {
		return a
	}
	all := matrices(d)
	if len(all) == 0 {
		return nil
	}
	m := all[0]
	if len(m.cpus) < 3 {
		return &advice{Verdict: adviceMoot, Text: fmt.Sprintf("one pair of CPUs was measured (%s): nothing to choose", topology.FormatList(slices.Sorted(slices.Values(m.cpus)))),
			Evidence: m.directions()}
	}
	var best *contrast
	var top *divided
	for _, c := range list {
		v := c.of.(*divided)
		if best == nil || c.Center > sameGood*best.Center || c.Center*sameGood > best.Center && len(v.groups) < len(top.groups) {
			best, top = c, v // if two ways to divide are equally good, prefer the one with fewer and larger groups
		}
	}
	if top == nil {
		return &advice{Verdict: adviceNone, Text: "all measured pairs are alike by what the host says, and no clusters stand out", Evidence: m.directions()}
	}
	in, out := stats.Summarize(valuesOf(top.in)), stats.Summarize(valuesOf(top.out))
	a := &advice{Effect: best.effectOf(), Evidence: append([]string{
		fmt.Sprintf("within a %s %s [%s..%s], across %s [%s..%s], one way, n=%d", top.name, asTime(in.Center), asTime(in.Lo), asTime(in.Hi),
			asTime(out.Center), asTime(out.Lo), asTime(out.Hi), in.N)}, m.directions()...)}
	cpus := topology.FormatList(slices.Sorted(slices.Values(top.nearest)))
	if !best.sure() {
		a.Verdict = adviceNone
		a.Text = fmt.Sprintf("a way across is %s of one within a %s: less than %.1f, or not surely", effectText(best.Interval), top.name, farther)
		return a
	}
	a.Verdict = adviceDo
	a.Text = fmt.Sprintf("keep processes that share a lock within one %s, as on CPUs %s: %s one way there, %s across", top.name, cpus, asTime(top.within), asTime(out.Center))
	a.Do = []string{"taskset -c " + cpus + " PROGRAM, or cpuset.cpus=" + cpus}
	return a
}

// colocateContrasts returns the comparisons for rule R2. It compares each class of pairs of CPUs with the nearer
// classes. Without measured classes, it groups the CPUs of a matrix in several ways. For each way, it compares pairs in
// different groups with pairs in the same group.
func colocateContrasts(d *Document) (list []*contrast) {
	if cells := d.mappedClasses(); len(cells) > 1 {
		return borders(cells, "p50-ns", farther)
	}
	all := matrices(d)
	if len(all) == 0 || len(all[0].cpus) < 3 {
		return nil
	}
	for i, p := range partitions(all[0], d.Topology) {
		v := all[0].divide(p, d.Topology)
		if v == nil {
			continue
		}
		c := &contrast{name: fmt.Sprint(p.name, i), least: farther, of: v}
		c.against(v.out, v.in)
		list = append(list, c)
	}
	return list
}

// directions lists the pairs of CPUs for which the time differs greatly between the two directions.
func (m *pairs) directions() (list []string) {
	type skew struct {
		text string
		by   float64
	}
	var all []skew
	for pair, there := range m.reps {
		back := m.reps[[2]int{pair[1], pair[0]}]
		if back == nil {
			continue
		}
		q, err := roundRatio(there, back)
		x, y := stats.Summarize(valuesOf(there)), stats.Summarize(orOne(valuesOf(back)))
		if err == nil && exceeds(q, farther) && x.Lo > y.Hi {
			all = append(all, skew{fmt.Sprintf("from CPU %d to %d takes %s of the other direction: %s, %s", pair[0], pair[1], effectText(q), asTime(x.Center), asTime(y.Center)), q.Center})
		}
	}
	slices.SortFunc(all, func(a, b skew) int {
		return strings.Compare(fmt.Sprintf("%012.3f%s", b.by, b.text), fmt.Sprintf("%012.3f%s", a.by, a.text))
	})
	const few = 3
	for i, s := range all {
		if i == few {
			return append(list, fmt.Sprintf("and %d other pairs whose directions differ", len(all)-few))
		}
		list = append(list, s.text)
	}
	return list
}

// orOne returns vs. If vs is empty, it returns a list with one infinite value, because Summarize needs a value.
func orOne(vs []float64) []float64 { return bench.Or(vs, math.Inf(1)) }

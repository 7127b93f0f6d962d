//go:build linux

package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// widest is the greatest allowed ratio of the highest to the lowest repetition of a figure that
// becomes a setting.
const widest = 2.0

// adviseSpin is R1: spin for as long as a sleep costs both sides. Then a wait never costs more
// than twice what the best choice would cost.
func adviseSpin(d *Document) *advice {
	cells := d.find("wake", by("shmsync:futex"), asleep, func(c *Cell) bool { return c.Params["place"] != bench.PlaceSame && c.Params["place"] != bench.PlaceAny })
	c := best(cells, "p50-ns")
	if c == nil || len(c.Values("waker-p50-ns")) == 0 {
		return nil
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
	budget := time.Duration(v.Center).Round(time.Microsecond)
	a.Verdict = adviceDo
	a.Text = fmt.Sprintf("spin for %s at most: a sleep costs as much (%s until the waiter runs, and %s of the process that wakes it). Objects learn by "+
		"themselves whether spinning pays; with more waiters than the %d CPUs, never spin",
		asTime(v.Center), asTime(stats.Median(c.Values("p50-ns"))), asTime(stats.Median(c.Values("waker-p50-ns"))), len(d.Env.Used))
	a.Do = []string{fmt.Sprintf("Spin: %d * time.Microsecond (for each object, or SetSpin); Spin: -1 with more waiters than CPUs", max(budget.Microseconds(), 1))}
	return a
}

// asleep reports whether the waiters of a wake cell were nearly always in the kernel. After a
// short gap they still spin, and the figure is not that of a wake.
func asleep(c *Cell) bool {
	const nearly = 0.9
	slept := c.Values("slept")
	return len(slept) == 0 || stats.Median(slept) >= nearly
}

// crowded says what spinning gains or costs with more workers than CPUs.
func crowded(d *Document) (list []string) {
	const much = 1.1
	for _, c := range d.find("oversub", by("shmsync:mutex"), with("spin", "auto")) {
		top := best(d.find("oversub", by("shmsync:mutex"), alike(c, "spin")), "ops/s")
		if q, err := gain(top, c, "ops/s"); err == nil && top != c && sure(q, much) {
			list = append(list, fmt.Sprintf("with %s workers for each CPU, spin=%s lets through %s of what learning does  %s", c.Params["load"], top.Params["spin"], effectText(q), c.group("spin", "load")))
		}
	}
	return list
}

// farther is the least ratio of the way to other CPUs to the way within a place that makes the
// place better (R2).
const farther = 1.3

// sameGood is the least gain of a partition over another that matters.
const sameGood = 1.05

// partition is a way to divide the CPUs of a matrix.
type partition struct {
	name   string // name of one part
	groups [][]int
}

// partitions lists the ways to divide the CPUs: those that the host reports, and those that were
// found by measuring.
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

// divided is a matrix divided by a partition: medians within the parts and between them, by
// round.
type divided struct {
	partition
	in, out map[int]float64
	nearest []int // the part with the shortest way within
	within  float64
}

// divide sorts the pairs of a matrix into those within one part and those between two parts. It
// leaves out pairs of threads of one core, which are near but slow each other down.
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

// adviseColocate is R2: run processes that communicate where the way is shortest, if it is much
// shorter there.
func adviseColocate(d *Document) *advice {
	if a := adviseClasses(d); a != nil {
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
	var top *divided
	var effect stats.Interval
	for _, p := range partitions(m, d.Topology) {
		v := m.divide(p, d.Topology)
		if v == nil {
			continue
		}
		q, err := roundRatio(v.out, v.in)
		switch {
		case err != nil:
		case top == nil, q.Center > sameGood*effect.Center, q.Center*sameGood > effect.Center && len(p.groups) < len(top.groups):
			top, effect = v, q // of equally good partitions, take the one with the largest parts
		}
	}
	if top == nil {
		return &advice{Verdict: adviceNone, Text: "all measured pairs are alike by what the host says, and no clusters stand out", Evidence: m.directions()}
	}
	in, out := stats.Summarize(valuesOf(top.in)), stats.Summarize(valuesOf(top.out))
	a := &advice{Effect: &effect, Evidence: append([]string{
		fmt.Sprintf("within a %s %s [%s..%s], across %s [%s..%s], one way, n=%d", top.name, asTime(in.Center), asTime(in.Lo), asTime(in.Hi),
			asTime(out.Center), asTime(out.Lo), asTime(out.Hi), in.N)}, m.directions()...)}
	list := topology.FormatList(slices.Sorted(slices.Values(top.nearest)))
	if !sure(effect, farther) || in.Hi >= out.Lo {
		a.Verdict = adviceNone
		a.Text = fmt.Sprintf("a way across is %s of one within a %s: less than %.1f, or not surely", effectText(effect), top.name, farther)
		return a
	}
	a.Verdict = adviceDo
	a.Text = fmt.Sprintf("keep processes that share a lock within one %s, as on CPUs %s: %s one way there, %s across", top.name, list, asTime(top.within), asTime(out.Center))
	a.Do = []string{"taskset -c " + list + " PROGRAM, or cpuset.cpus=" + list}
	return a
}

// directions lists the pairs whose two directions differ greatly.
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
		if err == nil && sure(q, farther) && x.Lo > y.Hi {
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

// orOne makes the summary of an empty list possible.
func orOne(vs []float64) []float64 { return bench.Or(vs, math.Inf(1)) }

// The metrics of mem cells.
const (
	memChaseMetric = "chase-ns"
	memScanMetric  = "scan-MB/s"
)

// chased returns the mem cells with ordinary pages that have a latency and a policy with the
// given prefix.
func (d *Document) chased(policy string) []*Cell {
	return d.find("mem", func(c *Cell) bool {
		huge := c.Params["huge"]
		return strings.HasPrefix(c.Params["mem"], policy) && (huge == "" || huge == "none") && len(c.Values(memChaseMetric)) > 0
	})
}

// nodeGain is the least gain that makes a node better than another (R3).
const nodeGain = 1.1

// adviseNode is R3: the node whose memory is nearest to all used CPUs. Each node counts by the
// number of its used CPUs.
func adviseNode(d *Document) *advice {
	cells := d.chased("bind:")
	if len(cells) == 0 {
		return nil
	}
	weight := map[string]float64{}
	for _, c := range cells {
		weight[c.Params["node"]] = 1
	}
	if d.Topology != nil {
		for node := range weight {
			id, _ := strconv.Atoi(node)
			n, _ := d.Topology.Node(id)
			used := slices.DeleteFunc(slices.Clone(n.CPUs), func(cpu int) bool { return !slices.Contains(d.Env.Used, cpu) })
			weight[node] = float64(max(len(used), 1))
		}
	}
	costs := map[string]map[int]float64{} // by policy and round
	seen := map[string]int{}
	for _, c := range cells {
		policy := c.Params["mem"]
		if costs[policy] == nil {
			costs[policy] = map[int]float64{}
		}
		seen[policy]++
		for i, v := range c.byRound(memChaseMetric) {
			costs[policy][i] += weight[c.Params["node"]] * v
		}
	}
	var names []string
	for policy := range costs {
		if seen[policy] == len(weight) { // measured from all nodes
			names = append(names, policy)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := stats.Median(valuesOf(costs[a])), stats.Median(valuesOf(costs[b]))
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return strings.Compare(a, b)
	})
	a := &advice{Verdict: adviceNone, Text: "memory was measured on one node"}
	for _, c := range cells {
		a.Evidence = append(a.Evidence, c.evidence(memChaseMetric))
	}
	if len(names) == 1 {
		a.Verdict = adviceMoot
		return a
	}
	q, err := roundRatio(costs[names[1]], costs[names[0]])
	if err != nil {
		return nil
	}
	a.Effect = &q
	if !sure(q, nodeGain) {
		a.Text = fmt.Sprintf("for the CPUs %s no node is nearer by %.0f %%, surely", topology.FormatList(d.Env.Used), 100*(nodeGain-1))
		return a
	}
	node := strings.TrimPrefix(names[0], "bind:")
	a.Verdict = adviceDo
	a.Text = fmt.Sprintf("place the arena on node %s: nearest to the CPUs %s, each node by its share of them", node, topology.FormatList(d.Env.Used))
	a.Do = []string{fmt.Sprintf(`NUMA: shm.Policy{Mode: shm.PolicyBind, Nodes: []int{%s}} of the arena's options, or numactl --membind=%s for the process that makes it`, node, node)}
	return a
}

// interleaveGain is the least gain of a scan (R4).
const interleaveGain = 1.1

// adviseInterleave is R4: pages on all nodes in turn, if CPUs of several nodes scan them and
// single loads do not suffer.
func adviseInterleave(d *Document) *advice {
	spread := append(d.chased("interleave"), d.chased("weighted")...)
	bound := d.chased("bind:")
	if len(spread) == 0 || len(bound) == 0 {
		return nil
	}
	scans := func(cells []*Cell, metric string) map[string]map[int][]float64 {
		all := map[string]map[int][]float64{}
		for _, c := range cells {
			policy := c.Params["mem"]
			if all[policy] == nil {
				all[policy] = map[int][]float64{}
			}
			for i, v := range c.byRound(metric) {
				all[policy][i] = append(all[policy][i], v)
			}
		}
		return all
	}
	// From the node with the worst figure: if all nodes work together, they wait for that one.
	worst := func(m map[int][]float64, pick func([]float64) float64) map[int]float64 {
		all := map[int]float64{}
		for i, vs := range m {
			all[i] = pick(vs)
		}
		return all
	}
	top := func(all map[string]map[int][]float64) (name string, rounds map[int]float64) {
		for policy, m := range all {
			w := worst(m, slices.Min[[]float64])
			if name == "" || stats.Median(valuesOf(w)) > stats.Median(valuesOf(rounds)) || stats.Median(valuesOf(w)) == stats.Median(valuesOf(rounds)) && policy < name {
				name, rounds = policy, w
			}
		}
		return name, rounds
	}
	spreadName, spreadScan := top(scans(spread, memScanMetric))
	boundName, boundScan := top(scans(bound, memScanMetric))
	q, err := roundRatio(spreadScan, boundScan)
	if err != nil {
		return nil
	}
	a := &advice{Verdict: adviceNone, Effect: &q}
	for _, c := range append(slices.Clone(spread), bound...) {
		if p := c.Params["mem"]; p == spreadName || p == boundName {
			a.Evidence = append(a.Evidence, c.evidence(memScanMetric))
		}
	}
	slow, err := roundRatio(worst(scans(spread, memChaseMetric)[spreadName], slices.Max[[]float64]), worst(scans(bound, memChaseMetric)[boundName], slices.Max[[]float64]))
	if back, berr := roundRatio(boundScan, spreadScan); berr == nil && sure(back, interleaveGain) {
		a.Verdict, a.Effect = adviceDo, &back
		a.Text = fmt.Sprintf("do not spread data over the nodes: the node that scans slowest gets %s× as much with %s as with %s", formatRatio(back.Center), boundName, spreadName)
		a.Do = []string{"bind each range of the arena to the node of the CPUs that use it, or leave it to first touch"}
		return a
	}
	if !sure(q, interleaveGain) || err != nil || slow.Center > nodeGain {
		a.Text = fmt.Sprintf("the node that scans slowest gets %s of what it gets with %s, and waits %s for a load", effectText(q), boundName, effectText(slow))
		return a
	}
	a.Verdict = adviceDo
	a.Text = fmt.Sprintf("spread large data that CPUs of several nodes scan: %s; the slowest node scans %s faster than with %s, and single loads take %s",
		spreadName, formatRatio(q.Center)+"×", boundName, formatRatio(slow.Center)+"×")
	a.Do = []string{fmt.Sprintf("a policy %s for that range of the arena; locks stay with those who use them", spreadName)}
	return a
}

// hugeGain is the least gain of larger pages (R5).
const hugeGain = 1.1

// adviseHuge is R5: larger pages, if loads that miss the TLB gain and the host has such pages.
func adviseHuge(d *Document) *advice {
	small := d.find("mem", with("huge", "none"))
	var top *advice
	for _, c := range small {
		for _, h := range d.find("mem", alike(c, "huge"), func(h *Cell) bool { return h.Params["huge"] != "none" }) {
			q, err := gain(h, c, memChaseMetric)
			if err != nil {
				continue
			}
			a := &advice{Verdict: adviceNone, Effect: &q, Evidence: []string{c.evidence(memChaseMetric), h.evidence(memChaseMetric)},
				Text: fmt.Sprintf("pages of %s are not surely better by %.0f %%", h.Params["huge"], 100*(hugeGain-1))}
			if sure(q, hugeGain) {
				a.Verdict = adviceDo
				a.Text = fmt.Sprintf("use pages of %s for an arena that is larger than the TLB reaches", h.Params["huge"])
				a.Do = []string{map[string]string{
					"thp": "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled; for files of /dev/shm: mount -o remount,huge=advise /dev/shm",
					"2M":  "sysctl vm.nr_hugepages=COUNT; and an arena on hugetlbfs: mount -t hugetlbfs -o pagesize=2M none /mnt/huge",
					"1G":  "hugepagesz=1G hugepages=COUNT on the kernel's command line; mount -t hugetlbfs -o pagesize=1G none /mnt/huge",
				}[h.Params["huge"]]}
			}
			if top == nil || q.Center > top.Effect.Center {
				top = a
			}
		}
	}
	return top
}

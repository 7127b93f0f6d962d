//go:build linux

package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// These are the names of metrics of mem cells: the latency of loads, and the speed of a scan.
const (
	memChaseMetric = "chase-ns"
	memScanMetric  = "scan-MB/s"
)

// chased returns the mem cells with a latency of loads, with pages of the ordinary size, and with a NUMA policy whose
// name begins with the parameter policy.
func (d *Document) chased(policy string) []*Cell {
	return d.find("mem", func(c *Cell) bool {
		huge := c.Params["huge"]
		return strings.HasPrefix(c.Params["mem"], policy) && (huge == "" || huge == "none") && len(c.Values(memChaseMetric)) > 0
	})
}

// nodeGain is the least gain for which rule R3 recommends the memory of one NUMA node instead of the memory of any
// other node.
const nodeGain = 1.1

// nodeCosts returns, for each policy that binds memory to one NUMA node, and for each round, the cost of this memory
// for all CPUs of the run. The cost is the sum of the latencies of loads by the CPUs of each node. The weight of a
// latency is the number of CPUs of this node that the run uses. nodeCosts omits a policy that was not measured from
// each node with CPUs.
func (d *Document) nodeCosts() map[string]map[int]float64 {
	cells := d.chased("bind:")
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
	costs := map[string]map[int]float64{}
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
	maps.DeleteFunc(costs, func(policy string, _ map[int]float64) bool { return seen[policy] < len(weight) })
	return costs
}

// nodeContrasts returns the comparisons for rule R3. It compares each NUMA node with all others.
func nodeContrasts(d *Document) (list []*contrast) {
	costs := d.nodeCosts()
	names := slices.Sorted(maps.Keys(costs))
	for _, policy := range names {
		c := &contrast{name: policy, least: nodeGain}
		for _, other := range names {
			if other != policy {
				c.against(costs[other], costs[policy])
			}
		}
		if len(names) > 1 {
			list = append(list, c)
		}
	}
	return list
}

// adviseNode is rule R3: which NUMA node has the memory that the CPUs of the run reach fastest.
func adviseNode(d *Document, list []*contrast) *advice {
	cells, costs := d.chased("bind:"), d.nodeCosts()
	names := slices.Collect(maps.Keys(costs))
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
	c := pick(list, names[0])
	if c == nil {
		return nil
	}
	a.Effect = c.effectOf()
	if !c.sure() {
		a.Text = fmt.Sprintf("leave it to first touch, on the node of the process that makes the arena: no node is surely nearer by %.0f %% to all of the CPUs %s",
			100*(nodeGain-1), topology.FormatList(d.Env.Used))
		return a
	}
	node := strings.TrimPrefix(names[0], "bind:")
	a.Verdict = adviceDo
	a.Text = fmt.Sprintf("place the arena on node %s: nearest to the CPUs %s, each node by its share of them", node, topology.FormatList(d.Env.Used))
	a.Do = []string{fmt.Sprintf(`NUMA: shm.Policy{Mode: shm.PolicyBind, Nodes: []int{%s}} of the arena's options, or numactl --membind=%s for the process that makes it`, node, node)}
	return a
}

// interleaveGain is the least speedup of a scan of memory for which rule R4 advises where to put pages.
const interleaveGain = 1.1

// policies returns the values of a metric by NUMA policy and round. If a policy was measured from the CPUs of several
// nodes, the function worst selects the value of the slowest node, because nodes that work together wait for it.
func policies(cells []*Cell, metric string, worst func([]float64) float64) map[string]map[int]float64 {
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
	figures := map[string]map[int]float64{}
	for policy, rounds := range all {
		figures[policy] = map[int]float64{}
		for i, vs := range rounds {
			figures[policy][i] = worst(vs)
		}
	}
	return figures
}

// spreadAndBound returns two lists of mem cells. The memory of a cell in spread is interleaved over the nodes, and the
// memory of a cell in bound is on one node.
func (d *Document) spreadAndBound() (spread, bound []*Cell) {
	return append(d.chased("interleave"), d.chased("weighted")...), d.chased("bind:")
}

// interleaveContrasts returns the comparisons for rule R4. There are two kinds of choices: policies that interleave
// memory over the nodes, and policies that bind it to one node. The contrast of each choice compares it with all
// choices of the other kind.
func interleaveContrasts(d *Document) (list []*contrast) {
	spread, bound := d.spreadAndBound()
	if len(spread) == 0 || len(bound) == 0 {
		return nil
	}
	x, y := policies(spread, memScanMetric, slices.Min[[]float64]), policies(bound, memScanMetric, slices.Min[[]float64])
	for k, sides := range [][2]map[string]map[int]float64{{x, y}, {y, x}} {
		for _, policy := range slices.Sorted(maps.Keys(sides[0])) {
			c := &contrast{name: policy, least: interleaveGain, from: k}
			for _, other := range slices.Sorted(maps.Keys(sides[1])) {
				c.against(sides[0][policy], sides[1][other]) // more is better
			}
			list = append(list, c)
		}
	}
	return list
}

// adviseInterleave is rule R4: whether to put pages on all nodes in turn. It advises this if scans by CPUs of
// several nodes get faster and single loads do not get slower.
func adviseInterleave(d *Document, list []*contrast) *advice {
	if len(list) == 0 {
		return nil
	}
	spread, bound := d.spreadAndBound()
	// top returns the best choice of one kind: interleaved memory (side 0) or memory on one node (side 1). A choice
	// with a proven effect is better than a choice without one.
	top := func(side int) (best *contrast) {
		for _, c := range list {
			if c.from == side && (best == nil || c.sure() && !best.sure() || c.sure() == best.sure() && c.Center > best.Center) {
				best = c
			}
		}
		return best
	}
	q, back := top(0), top(1)
	spreadName, boundName := q.name, back.name
	a := &advice{Verdict: adviceNone, Effect: q.effectOf()}
	for _, c := range append(slices.Clone(spread), bound...) {
		if p := c.Params["mem"]; p == spreadName || p == boundName {
			a.Evidence = append(a.Evidence, c.evidence(memScanMetric))
		}
	}
	slow, err := roundRatio(policies(spread, memChaseMetric, slices.Max[[]float64])[spreadName], policies(bound, memChaseMetric, slices.Max[[]float64])[boundName])
	if back.sure() {
		a.Verdict, a.Effect = adviceDo, back.effectOf()
		a.Text = fmt.Sprintf("do not spread data over the nodes: the node that scans slowest gets %s× as much with %s as with %s", formatRatio(back.Center), boundName, spreadName)
		a.Do = []string{"bind each range of the arena to the node of the CPUs that use it, or leave it to first touch"}
		return a
	}
	if !q.sure() || err != nil || slow.Center > nodeGain {
		a.Text = fmt.Sprintf("the node that scans slowest gets %s of what it gets with %s, and waits %s for a load", effectText(q.Interval), boundName, effectText(slow))
		return a
	}
	a.Verdict = adviceDo
	a.Text = fmt.Sprintf("spread large data that CPUs of several nodes scan: %s; the slowest node scans %s faster than with %s, and single loads take %s",
		spreadName, formatRatio(q.Center)+"×", boundName, formatRatio(slow.Center)+"×")
	a.Do = []string{fmt.Sprintf("a policy %s for that range of the arena; locks stay with those who use them", spreadName)}
	return a
}

// hugeGain is the least speedup of loads by larger pages for which rule R5 advises such pages.
const hugeGain = 1.1

// hugeContrasts returns the comparisons for rule R5. It compares larger pages with small pages of the same placement.
func hugeContrasts(d *Document) (list []*contrast) {
	for _, c := range d.find("mem", with("huge", "none")) {
		for _, h := range d.find("mem", alike(c, "huge"), func(h *Cell) bool { return h.Params["huge"] != "none" }) {
			list = append(list, contrastOf(h.Key, h, c, memChaseMetric, hugeGain))
		}
	}
	return list
}

// adviseHuge is rule R5: whether to use larger pages. It advises them if they make loads that miss the TLB faster
// and the host has pages of that size.
func adviseHuge(_ *Document, list []*contrast) *advice {
	var top *advice
	for _, x := range list {
		c, h := x.worse, x.better
		a := &advice{Verdict: adviceNone, Effect: x.effectOf(), Evidence: []string{c.evidence(memChaseMetric), h.evidence(memChaseMetric)},
			Text: fmt.Sprintf("pages of %s are not surely better by %.0f %%", h.Params["huge"], 100*(hugeGain-1))}
		if x.sure() {
			a.Verdict = adviceDo
			a.Text = fmt.Sprintf("use pages of %s for an arena that is larger than the TLB reaches", h.Params["huge"])
			a.Do = []string{map[string]string{
				"thp": "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled; for files of /dev/shm: mount -o remount,huge=advise /dev/shm",
				"2M":  "sysctl vm.nr_hugepages=COUNT; and an arena on hugetlbfs: mount -t hugetlbfs -o pagesize=2M none /mnt/huge",
				"1G":  "hugepagesz=1G hugepages=COUNT on the kernel's command line; mount -t hugetlbfs -o pagesize=1G none /mnt/huge",
			}[h.Params["huge"]]}
		}
		if top == nil || a.Verdict == adviceDo && (top.Verdict != adviceDo || x.Center > top.Effect.Center) {
			top = a
		}
	}
	return top
}

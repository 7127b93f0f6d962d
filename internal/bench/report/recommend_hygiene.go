//go:build linux

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
)

// hygiene is rule R11. It finds settings of the host that disturb measurements or placement. The rule does not use
// times, so it also applies to an emulated host.
func hygiene(d *Document) (all []advice) {
	say := func(text string, do ...string) {
		all = append(all, advice{Rule: "R11", About: "the host", Verdict: adviceDo, Text: text, Do: do})
	}
	e, t := d.Env, d.Topology
	if e.NUMABalance && e.Nodes > 1 {
		say("automatic NUMA balancing moves pages and threads that are placed on purpose", "sysctl kernel.numa_balancing=0")
	}
	if slices.Contains([]string{"powersave", "ondemand", "conservative"}, e.Governor) {
		say(fmt.Sprintf("the frequency governor %s makes a CPU slow that has slept", e.Governor), "cpupower frequency-set -g performance")
	}
	if ignored := d.refused("ignores NUMA placement"); ignored != "" {
		say("memory could not be placed: "+ignored, "make the arena in /dev/shm, on another tmpfs, or as a memfd")
	}
	if refused := d.refused("permit"); refused != "" {
		say("memory could not be placed: "+refused, "run with CAP_SYS_NICE, or a seccomp profile that permits mbind and move_pages (docker run --cap-add SYS_NICE)")
	}
	if t == nil {
		return all
	}
	if missing := missingNodes(t); len(missing) > 0 {
		list := topology.FormatList(missing)
		say(fmt.Sprintf("this process may use CPUs of node %s, and not its memory: cpuset.mems has %s", list, topology.FormatList(t.Limits.Nodes)),
			"echo "+topology.FormatList(slices.Compact(slices.Sorted(slices.Values(slices.Concat(t.Limits.Nodes, missing)))))+" > cpuset.mems of the cgroup")
	}
	for _, n := range t.Nodes {
		usable := slices.ContainsFunc(n.CPUs, func(cpu int) bool { return slices.Contains(t.Limits.CPUs, cpu) })
		if n.Bytes == 0 && usable {
			say(fmt.Sprintf("node %d has CPUs (%s) and no memory: whatever they touch first comes from node %d", n.ID, topology.FormatList(n.CPUs), t.Nearest(n.ID)),
				fmt.Sprintf("name node %d in policies, never node %d: binding to it fails", t.Nearest(n.ID), n.ID))
		}
	}
	if l := t.Limits; l.Quota > 0 && l.Quota < float64(len(l.CPUs)) {
		say(fmt.Sprintf("the cgroup has time of %.2f CPUs, and may run on %d: a holder can be stopped while others spin for it", l.Quota, len(l.CPUs)),
			"give it as much time as CPUs (cpu.max), or no more CPUs than time (cpuset.cpus), or Spin: -1")
	}
	if on := slices.DeleteFunc(slices.Clone(t.Settings.Isolated), func(cpu int) bool { return !slices.Contains(e.Used, cpu) }); len(on) > 0 && len(on) < len(e.Used) {
		say(fmt.Sprintf("CPUs %s are isolated and others of this run are not: the scheduler does not move threads to or from them", topology.FormatList(on)),
			"pin what runs there, or leave them out: --cpus")
	}
	if kinds := capacities(t, e.Used); len(kinds) > 1 {
		say("the CPUs are of different kinds, "+strings.Join(kinds, ", ")+": a slow holder keeps fast waiters", "taskset -c "+fastest(t, e.Used)+" PROGRAM, for what shares a lock")
	}
	return all
}

// missingNodes returns the NUMA nodes that have usable CPUs, but whose memory this process must not use.
func missingNodes(t *topology.Topology) (list []int) {
	for _, n := range t.Nodes {
		usable := slices.ContainsFunc(n.CPUs, func(cpu int) bool { return slices.Contains(t.Limits.CPUs, cpu) })
		if usable && n.Bytes > 0 && !slices.Contains(t.Limits.Nodes, n.ID) {
			list = append(list, n.ID)
		}
	}
	return list
}

// capacities returns a text for each group of CPUs with the same capacity, that is, the same relative speed. The group
// with the largest capacity comes first.
func capacities(t *topology.Topology, cpus []int) (kinds []string) {
	groups := byCapacity(t, cpus)
	for _, g := range groups {
		c, _ := t.CPU(g[0])
		kinds = append(kinds, fmt.Sprintf("%s of capacity %d", topology.FormatList(g), c.Capacity))
	}
	return kinds
}

func byCapacity(t *topology.Topology, cpus []int) [][]int {
	groups := t.Groups(slices.Sorted(slices.Values(cpus)), func(c topology.CPU) int { return c.Capacity })
	slices.SortFunc(groups, func(a, b []int) int {
		x, _ := t.CPU(a[0])
		y, _ := t.CPU(b[0])
		return y.Capacity - x.Capacity
	})
	return groups
}

// fastest returns the CPUs with the greatest capacity, as a list.
func fastest(t *topology.Topology, cpus []int) string {
	return topology.FormatList(byCapacity(t, cpus)[0])
}

// refused returns the first reason for a skipped mem measurement that contains the given words. It returns an empty
// string if there is none.
func (d *Document) refused(words string) string {
	for i := range d.Cells {
		c := &d.Cells[i]
		if c.Scenario == "mem" && c.Status == bench.StatusSkipped && strings.Contains(c.Reason, words) {
			return c.Reason
		}
	}
	return ""
}

//go:build linux

package plan

import (
	"fmt"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
)

// homePlaces returns two classes of pairs of CPUs on different cores: the class of the nearest pairs and the class of
// the farthest pairs. A brief plan has only the nearest class: the shorter the way between two CPUs, the more the node
// of the memory matters.
func homePlaces(o *Options) []string {
	if o.Topology == nil || len(o.CPUs) < 2 {
		return []string{bench.PlaceCross}
	}
	var list []string
	for _, class := range o.Topology.ClassesOf(o.CPUs) {
		if class.Base() != topology.SMT {
			list = append(list, string(class))
		}
	}
	switch {
	case len(list) == 0:
		return []string{o.apart()}
	case len(list) == 1 || o.Brief:
		return list[:1]
	}
	return []string{list[0], list[len(list)-1]}
}

// homeCells returns cells in which two processes share a lock, or only a cache line, on a chosen NUMA node.
func homeCells(o *Options) (cells []bench.Cell) {
	homes := bench.HomeNames
	if o.Brief { // advice rests on these two
		homes = []string{bench.HomeFirst, bench.HomeThird}
	}
	if o.Topology == nil {
		homes = []string{bench.HomeFirst}
	}
	for _, place := range bench.Or(o.Places, homePlaces(o)...) {
		for _, home := range bench.Or(o.Homes, homes...) {
			cells = append(cells, bench.Cell{Place: place, Procs: 2, Threads: 1, CS: 100, Think: 100, Home: home})
		}
	}
	return cells
}

// settleHome sets the NUMA node on which the memory of a cell will lie. If the host has no such node, it returns
// the reason.
func (o *Options) settleHome(c *bench.Cell) string {
	if c.Home == "" {
		return ""
	}
	if o.Topology == nil { // a host that does not describe its nodes counts as one node
		if c.Home != bench.HomeFirst {
			return "the host does not describe its nodes"
		}
		return ""
	}
	if c.Apart() && len(bench.Or(c.CPUs, o.CPUs...)) < 2 {
		return "" // CheckShape reports this case
	}
	h := memHostOf(o.Topology, o.CPUs)
	var nodes [2]int
	for i := range nodes {
		cpu, ok := o.Topology.CPU(c.CPUOf(i, o.CPUs))
		if !ok {
			return "a home needs processes with a CPU each"
		}
		nodes[i] = cpu.Node
		if near := o.Topology.Nearest(cpu.Node); !slices.Contains(h.memory, cpu.Node) && slices.Contains(h.memory, near) {
			nodes[i] = near // if a node has no memory, its CPUs get memory from the nearest node
		}
	}
	own := func(node int) string {
		if slices.Contains(h.memory, node) {
			c.HomeNode = node
			return ""
		}
		return fmt.Sprintf("node %d of its CPUs has no memory to use", node)
	}
	switch {
	case c.Home == bench.HomeFirst:
		return own(nodes[0])
	case c.Home == bench.HomeSecond && nodes[0] == nodes[1]:
		return fmt.Sprintf("both CPUs have their memory on node %d, as with home=%s", nodes[0], bench.HomeFirst)
	case c.Home == bench.HomeSecond:
		return own(nodes[1])
	}
	best, far := -1, -1
	for _, node := range h.memory {
		d := max(o.Topology.Distance(nodes[0], node), o.Topology.Distance(nodes[1], node))
		if !slices.Contains(nodes[:], node) && d > far {
			best, far = node, d
		}
	}
	if best < 0 {
		return "no other node has memory to use"
	}
	c.HomeNode = best
	return ""
}

// checkHomes returns an error if a name that the user gave is not one of HomeNames.
func (o *Options) checkHomes() error {
	for _, home := range o.Homes {
		if !slices.Contains(bench.HomeNames, home) {
			return fmt.Errorf("--home %q: want first, second or third", home)
		}
	}
	return nil
}

// oneHome skips the cells that compare memory on different NUMA nodes if only one node has memory.
func oneHome(cells []*bench.Cell) {
	other := func(c *bench.Cell) bool { return c.Home != "" && c.Home != bench.HomeFirst && c.Skip == "" }
	if slices.ContainsFunc(cells, other) {
		return
	}
	for _, c := range cells {
		if c.Home != "" && c.Skip == "" {
			c.Skip = "no other node has memory to use"
		}
	}
}

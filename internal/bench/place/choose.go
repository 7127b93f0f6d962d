//go:build linux

package place

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/topology"
)

// IsPair reports whether the name of a placement consists of the numbers of two CPUs, as 0+1 does.
func IsPair(name string) bool { return strings.Contains(name, "+") }

// ParsePair returns the CPUs in the name of a placement such as 0+1. The first one is for the first process.
func ParsePair(name string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(name, "+") {
		cpu, err := strconv.Atoi(part)
		if err != nil || cpu < 0 {
			return nil, fmt.Errorf("--place %q: %q is no CPU", name, part)
		}
		if slices.Contains(cpus, cpu) {
			return nil, fmt.Errorf("--place %q: CPU %d is there twice; --place same --cpus %d has all on one", name, cpu, cpu)
		}
		cpus = append(cpus, cpu)
	}
	return cpus, nil
}

// Usable returns an error that says why a CPU cannot be used, or nil.
func Usable(cpu int, allowed []int, t *topology.Topology) error {
	if slices.Contains(allowed, cpu) {
		return nil
	}
	if t != nil {
		if _, ok := t.CPU(cpu); ok {
			return fmt.Errorf("this process may not run on CPU %d, only on %s: its affinity or cpuset", cpu, topology.FormatList(allowed))
		}
		if slices.Contains(t.Offline, cpu) {
			return fmt.Errorf("CPU %d is offline", cpu)
		}
		return fmt.Errorf("this host has no CPU %d, only %s", cpu, topology.FormatList(t.IDs()))
	}
	return fmt.Errorf("this process may not run on CPU %d", cpu)
}

// OnNodes returns those CPUs of the list that are on one of the given NUMA nodes.
func OnNodes(nodes, cpus []int, t *topology.Topology) ([]int, error) {
	if t == nil {
		return nil, fmt.Errorf("--nodes: this host does not say which it has")
	}
	var list []int
	for _, id := range nodes {
		n, ok := t.Node(id)
		if !ok {
			return nil, fmt.Errorf("--nodes: this host has no node %d, only %s", id, topology.FormatList(t.NodeIDs()))
		}
		if len(n.CPUs) == 0 {
			return nil, fmt.Errorf("--nodes: node %d has no CPUs, only memory", id)
		}
		before := len(list)
		for _, cpu := range cpus {
			if slices.Contains(n.CPUs, cpu) {
				list = append(list, cpu)
			}
		}
		if len(list) == before {
			return nil, fmt.Errorf("--nodes: of the CPUs of node %d (%s) this process may use none", id, topology.FormatList(n.CPUs))
		}
	}
	return list, nil
}

// Parts divides the CPUs into groups. Every function in keys returns the same value for all CPUs of a group.
func Parts(t *topology.Topology, cpus []int, keys ...func(topology.CPU) int) [][]int {
	all := [][]int{cpus}
	for _, key := range keys {
		var finer [][]int
		for _, group := range all {
			finer = append(finer, t.Groups(group, key)...)
		}
		all = finer
	}
	return all
}

// Apart returns the first group for whose CPUs the function keys[0] returns different values, or nil if there is no
// such group. It orders the CPUs of this group as Alternate does.
func Apart(t *topology.Topology, groups [][]int, keys ...func(topology.CPU) int) []int {
	for _, group := range groups {
		if len(t.Groups(group, keys[0])) > 1 {
			return Alternate(t, group, keys...)
		}
	}
	return nil
}

// Alternate orders CPUs. CPUs for which the function keys[0] returns the same value form a part, and the list takes a
// CPU from each part in turn. The other functions in keys order the CPUs within a part in the same way.
func Alternate(t *topology.Topology, cpus []int, keys ...func(topology.CPU) int) (list []int) {
	if len(keys) == 0 {
		return cpus
	}
	groups := t.Groups(cpus, keys[0])
	for i := range groups {
		groups[i] = Alternate(t, groups[i], keys[1:]...)
	}
	for round := range len(cpus) {
		for _, group := range groups {
			if round < len(group) {
				list = append(list, group[round])
			}
		}
	}
	return list
}

//go:build linux

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/topology"
)

// Placements by what CPUs share, a CPU for each process in turn: the classes of
// topology, and whole nodes, and near and far from each other.
const (
	placeSMT          = string(topology.SMT)
	placeLLC          = string(topology.SameLLC)
	placeOtherLLC     = string(topology.OtherLLC)
	placePackage      = string(topology.SamePackage)
	placeCrossPackage = string(topology.CrossPackage)
	placeNode         = "node"   // the cores of one node
	placePack         = "pack"   // as near to each other as can be
	placeSpread       = "spread" // as far from each other as can be
)

var placeNames = []string{
	placeSame, placeSMT, placeLLC, placeNode, placeOtherLLC, placePackage, placeCrossPackage, placeCross, placePack, placeSpread, placeAny,
}

// isPair tells a placement that names its CPUs: 0+1.
func isPair(place string) bool { return strings.Contains(place, "+") }

// parsePair reads the CPUs of 0+1, in the order of the processes.
func parsePair(place string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(place, "+") {
		cpu, err := strconv.Atoi(part)
		if err != nil || cpu < 0 {
			return nil, fmt.Errorf("--place %q: %q is no CPU", place, part)
		}
		if slices.Contains(cpus, cpu) {
			return nil, fmt.Errorf("--place %q: CPU %d is there twice; --place same --cpus %d has all on one", place, cpu, cpu)
		}
		cpus = append(cpus, cpu)
	}
	return cpus, nil
}

// checkPlaces refuses placements that there are not, and CPUs that cannot be used.
func (o *options) checkPlaces(allowed []int) error {
	for _, p := range o.Places {
		if slices.Contains(placeNames, p) {
			continue
		}
		if !isPair(p) {
			return fmt.Errorf("--place %q: want CPUs as in 0+1, or one of %s", p, strings.Join(placeNames, ", "))
		}
		cpus, err := parsePair(p)
		if err != nil {
			return err
		}
		for _, cpu := range cpus {
			if err := usable(cpu, allowed, o.Topology); err != nil {
				return fmt.Errorf("--place %s: %w", p, err)
			}
		}
	}
	return nil
}

// usable says why a CPU cannot be used.
func usable(cpu int, allowed []int, t *topology.Topology) error {
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

// onNodes gives the CPUs of the nodes among some.
func onNodes(nodes, cpus []int, t *topology.Topology) ([]int, error) {
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

// on gives the CPUs of a placement, one for each process in turn, or why this host has
// none such. Nil without a reason leaves it to the cell.
func (o *options) on(place string) (cpus []int, why string) {
	cpus, why = o.find(place)
	if len(cpus) > 0 {
		return cpus, ""
	}
	return nil, why
}

// find gives the CPUs of a placement, and the reason if there are none.
func (o *options) find(place string) (cpus []int, why string) {
	t := o.Topology
	switch {
	case place == placeSame || place == placeCross || place == placeAny:
		return nil, ""
	case isPair(place):
		cpus, err := parsePair(place)
		if err != nil {
			return nil, err.Error()
		}
		return cpus, ""
	case t == nil:
		return nil, "the host does not say what its CPUs share"
	}
	near := t.Near(o.CPUs)
	switch place {
	case placeSMT:
		return apart(t, parts(t, near, topology.ByCore), topology.ByID), "no core has two threads to use"
	case placeLLC:
		return apart(t, parts(t, near, topology.ByPackage, topology.ByNode, topology.ByLLC), topology.ByCore), "no two cores to use share a last-level cache"
	case placeNode:
		return apart(t, parts(t, near, topology.ByNode), topology.ByCore), "no node has two cores to use"
	case placeOtherLLC:
		return apart(t, parts(t, near, topology.ByPackage, topology.ByNode), topology.ByLLC, topology.ByCore), "no node has two last-level caches to use"
	case placePackage:
		return apart(t, parts(t, near, topology.ByPackage), topology.ByNode, topology.ByCore), "no package has CPUs of two nodes to use"
	case placeCrossPackage:
		return apart(t, [][]int{near}, topology.ByPackage, topology.ByCore), "no two packages have CPUs to use"
	case placePack:
		return apart(t, [][]int{near}, topology.ByID), "there is one CPU to use"
	}
	if len(near) < 2 {
		return nil, "there is one CPU to use"
	}
	return alternate(t, near, topology.ByPackage, topology.ByNode, topology.ByLLC, topology.ByCore), ""
}

// parts splits CPUs by a key, the parts by the next, and so on.
func parts(t *topology.Topology, cpus []int, keys ...func(topology.CPU) int) [][]int {
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

// apart gives the CPUs of the first group that falls into two parts or more by the first
// key, those of its parts in turn. It is nil where no group does.
func apart(t *topology.Topology, groups [][]int, keys ...func(topology.CPU) int) []int {
	for _, group := range groups {
		if len(t.Groups(group, keys[0])) > 1 {
			return alternate(t, group, keys...)
		}
	}
	return nil
}

// alternate orders CPUs so that those of different parts alternate, by the first key, and
// within a part by the next.
func alternate(t *topology.Topology, cpus []int, keys ...func(topology.CPU) int) (list []int) {
	if len(keys) == 0 {
		return cpus
	}
	groups := t.Groups(cpus, keys[0])
	for i := range groups {
		groups[i] = alternate(t, groups[i], keys[1:]...)
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

//go:build linux

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/topology"
)

// checkPlaces returns an error for a placement that is impossible, or that names a CPU that cannot be used.
func (o *Options) checkPlaces(allowed []int) error {
	for _, p := range o.Places {
		if slices.Contains(bench.PlaceNames, p) || topology.Class(p).Valid() {
			continue
		}
		if !place.IsPair(p) {
			return fmt.Errorf("--place %q: want CPUs as in 0+1, a class as in remote-21, or one of %s", p, strings.Join(bench.PlaceNames, ", "))
		}
		cpus, err := place.ParsePair(p)
		if err != nil {
			return err
		}
		for _, cpu := range cpus {
			if err := place.Usable(cpu, allowed, o.Topology); err != nil {
				return fmt.Errorf("--place %s: %w", p, err)
			}
		}
	}
	return nil
}

// The method on returns the CPUs of a placement, which the processes get in turn, or the reason why this host has
// no such CPUs. Both results are empty if the placement leaves the choice to the measurement.
func (o *Options) on(name string) (cpus []int, why string) {
	if o.known != nil && o.known.places[name] != nil {
		return o.known.places[name], ""
	}
	cpus, why = o.find(name)
	if len(cpus) == 0 {
		return nil, why
	}
	if o.known != nil {
		o.known.places[name] = cpus
	}
	return cpus, ""
}

// find returns the same as o.on, but does not use the cache.
func (o *Options) find(name string) (cpus []int, why string) {
	t := o.Topology
	switch {
	case name == bench.PlaceSame || name == bench.PlaceCross || name == bench.PlaceAny:
		return nil, ""
	case place.IsPair(name):
		cpus, err := place.ParsePair(name)
		if err != nil {
			return nil, err.Error()
		}
		return cpus, ""
	case t == nil:
		return nil, "the host does not say what its CPUs share"
	}
	near := t.Near(o.CPUs)
	if len(near) < 2 {
		return nil, "there is one CPU to use"
	}
	switch name {
	case bench.PlacePack:
		return secondThreadsLast(t, near), ""
	case bench.PlaceSpread:
		return place.Alternate(t, near, topology.ByPackage, topology.ByNode, topology.ByLLC, topology.ByCore), ""
	}
	if cpus := t.Representative(near, topology.Class(name)); cpus != nil {
		return cpus, ""
	}
	return nil, fmt.Sprintf("no two CPUs to use are of the class %s; there are %s", name, joinClasses(t.ClassesOf(near)))
}

func joinClasses(list []topology.Class) string {
	var names []string
	for _, c := range list {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// secondThreadsLast returns the CPUs in another order: first the first CPU of each core, then the second CPU of each
// core, and so on.
func secondThreadsLast(t *topology.Topology, cpus []int) []int {
	seen := map[int]int{}
	rank := map[int]int{}
	for _, id := range cpus {
		c, _ := t.CPU(id)
		rank[id] = seen[c.Core]
		seen[c.Core]++
	}
	list := slices.Clone(cpus)
	slices.SortStableFunc(list, func(a, b int) int { return rank[a] - rank[b] })
	return list
}

// namePlaces replaces a placement that stands for several classes of pairs of CPUs by the full names of the classes
// that this host has. PlaceClasses stands for all classes. The full name of a class can end in a distance and in kinds
// of CPUs, such as remote-21. A name without these, such as remote, stands for all classes that differ only in them.
// With full names, the key of a measurement means the same on each host.
func (o *Options) namePlaces() {
	if o.Topology == nil {
		return
	}
	var list []string
	for _, p := range o.Places {
		found := false
		for _, class := range o.Topology.ClassesOf(o.CPUs) {
			if p == bench.PlaceClasses || p == string(class.Base()) || p == string(class) {
				list, found = append(list, string(class)), true
			}
		}
		if !found {
			list = append(list, p)
		}
	}
	o.Places = slices.Compact(list)
}

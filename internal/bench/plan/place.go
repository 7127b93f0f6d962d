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

// checkPlaces refuses impossible placements, and CPUs that cannot be used.
func (o *Options) checkPlaces(allowed []int) error {
	for _, p := range o.Places {
		if slices.Contains(bench.PlaceNames, p) {
			continue
		}
		if !place.IsPair(p) {
			return fmt.Errorf("--place %q: want CPUs as in 0+1, or one of %s", p, strings.Join(bench.PlaceNames, ", "))
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

// on gives the CPUs of a placement, one for each process in turn, or why this host has
// none such. Nil without a reason leaves it to the cell.
func (o *Options) on(name string) (cpus []int, why string) {
	cpus, why = o.find(name)
	if len(cpus) > 0 {
		return cpus, ""
	}
	return nil, why
}

// find gives the CPUs of a placement, and the reason if there are none.
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
	switch name {
	case bench.PlaceSMT:
		return place.Apart(t, place.Parts(t, near, topology.ByCore), topology.ByID), "no core has two threads to use"
	case bench.PlaceLLC:
		return place.Apart(t, place.Parts(t, near, topology.ByPackage, topology.ByNode, topology.ByLLC), topology.ByCore), "no two cores to use share a last-level cache"
	case bench.PlaceNode:
		return place.Apart(t, place.Parts(t, near, topology.ByNode), topology.ByCore), "no node has two cores to use"
	case bench.PlaceOtherLLC:
		return place.Apart(t, place.Parts(t, near, topology.ByPackage, topology.ByNode), topology.ByLLC, topology.ByCore), "no node has two last-level caches to use"
	case bench.PlacePackage:
		return place.Apart(t, place.Parts(t, near, topology.ByPackage), topology.ByNode, topology.ByCore), "no package has CPUs of two nodes to use"
	case bench.PlaceCrossPackage:
		return place.Apart(t, [][]int{near}, topology.ByPackage, topology.ByCore), "no two packages have CPUs to use"
	case bench.PlacePack:
		return place.Apart(t, [][]int{near}, topology.ByID), "there is one CPU to use"
	}
	if len(near) < 2 {
		return nil, "there is one CPU to use"
	}
	return place.Alternate(t, near, topology.ByPackage, topology.ByNode, topology.ByLLC, topology.ByCore), ""
}

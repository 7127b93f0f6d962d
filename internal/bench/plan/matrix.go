//go:build linux

package plan

import (
	"fmt"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/topology"
)

// The number of pairs of CPUs that a matrix measures.
const (
	mostPairsAlone = 2304 // all pairs of 48 CPUs, unless the user asks for more
	mostPairsSuite = 700  // in a suite: those of all caches of 24, or all of 26 CPUs
	mostPairsAmong = 30   // in a matrix among other scenarios
	mostPairsBrief = 12   // in a matrix of a quick suite
)

// matrixPlaces returns the pairs of CPUs of a matrix as placements, with each direction as a pair
// of its own. The note says what was left out.
func (o *Options) matrixPlaces() (places []string, note string) {
	if len(o.Places) > 0 {
		return o.Places, ""
	}
	if len(o.CPUs) < 2 {
		return []string{bench.PlaceCross}, ""
	}
	if o.AllPairs {
		return o.allPairs()
	}
	most := mostPairsAlone
	switch {
	case o.Map:
		most = mostPairsSuite
	case o.Brief:
		most = mostPairsBrief
	case o.Sample == "":
		most = mostPairsAmong
	}
	finest := slices.Index(sampleModes, o.Sample)
	for i, mode := range sampleModes {
		if i < finest {
			continue
		}
		pairs := o.samplePairs(mode)
		if len(pairs) <= most || i == finest || i == len(sampleModes)-1 {
			if all := len(o.CPUs) * (len(o.CPUs) - 1); len(pairs) < all {
				note = fmt.Sprintf("matrix: %d of %d pairs of CPUs, some of each %s; --sample cpu --cpus LIST takes all of some", len(pairs), all, mode)
			}
			return pairs, note
		}
	}
	return nil, "" // not reached: the last mode always returns
}

// allPairs lists all pairs of CPUs. On a host with many CPUs, each pair has one direction.
func (o *Options) allPairs() (places []string, note string) {
	if all := len(o.CPUs) * (len(o.CPUs) - 1); all <= mostPairsAlone {
		return o.samplePairs("cpu"), ""
	}
	cpus := o.CPUs
	if o.Topology != nil {
		cpus = o.Topology.Near(cpus)
	}
	for i, a := range cpus {
		for _, b := range cpus[i+1:] {
			places = append(places, topology.JoinCPUs([]int{a, b}))
		}
	}
	return places, fmt.Sprintf("matrix: all %d pairs of CPUs, each in one direction: the line is on the node of the CPU that comes first", len(places))
}

// ManyPairs reports whether a matrix of all pairs has so many that one subject is enough.
func (o *Options) ManyPairs() bool {
	return o.AllPairs && len(o.CPUs)*(len(o.CPUs)-1) > mostPairsAlone
}

// sampleModes are the ways of choosing pairs, the finest first.
var sampleModes = []string{"cpu", "llc", "node", "class"}

// samplePairs lists the pairs of a mode.
func (o *Options) samplePairs(mode string) (places []string) {
	seen := map[string]bool{}
	add := func(a, b int) {
		for _, p := range []string{topology.JoinCPUs([]int{a, b}), topology.JoinCPUs([]int{b, a})} {
			if a != b && !seen[p] {
				seen[p] = true
				places = append(places, p)
			}
		}
	}
	t := o.Topology
	if mode == "cpu" || t == nil {
		for i, a := range o.CPUs {
			for _, b := range o.CPUs[i+1:] {
				add(a, b)
			}
		}
		return places
	}
	cpus := t.Near(o.CPUs)
	groups := [][]int{cpus}
	switch mode {
	case "llc":
		groups = place.Parts(t, cpus, topology.ByPackage, topology.ByNode, topology.ByLLC)
	case "node":
		groups = place.Parts(t, cpus, topology.ByPackage, topology.ByNode)
	}
	for i, group := range groups {
		found := map[topology.Class]bool{}
		for _, b := range group[1:] { // one pair of each class within a group
			if class := t.Class(group[0], b); !found[class] {
				found[class] = true
				add(group[0], b)
			}
		}
		for _, other := range groups[i+1:] {
			add(group[0], other[0])
		}
	}
	return places
}

// ClassPairs is the most pairs of CPUs that stand for a class: the median of so many is within a few percent of that of
// all pairs.
const ClassPairs = 64

// pairsOf draws the pairs of CPUs that a matrix cell of a class visits. It returns nil if the placement is no class.
func (o *Options) pairsOf(class topology.Class) [][2]int {
	if o.Topology == nil || !class.Valid() {
		return nil
	}
	return o.Topology.Pairs(o.CPUs, class, ClassPairs, o.Seed)
}

// classNote says how many pairs stand for a class, or is empty if no class has several.
func (o *Options) classNote(classes []topology.Class) string {
	most := 0
	for _, class := range classes {
		most = max(most, len(o.pairsOf(class)))
	}
	if most < 2 {
		return ""
	}
	return fmt.Sprintf("matrix: up to %d pairs of CPUs stand for a class, and each repetition visits up to %d of them in turn", most, min(most, bench.PairsEachRound))
}

// MatrixNotes says what a matrix cannot show on this host.
func (o *Options) MatrixNotes() (notes []string) {
	if _, note := o.matrixPlaces(); note != "" {
		notes = append(notes, note)
	}
	classes := o.classes()
	for _, p := range o.Places {
		classes = append(classes, topology.Class(p))
	}
	if note := o.classNote(classes); note != "" {
		notes = append(notes, note)
	}
	t := o.Topology
	switch {
	case len(o.Places) > 0 || len(o.CPUs) < 2:
		return notes
	case len(o.CPUs) == 2:
		notes = append(notes, "matrix: two CPUs are one pair, in two directions")
	}
	if t == nil {
		return append(notes, "matrix: the host does not say what its CPUs share")
	}
	switch {
	case len(place.Parts(t, o.CPUs, topology.ByNode)) == 1 && len(place.Parts(t, o.CPUs, topology.ByLLC)) == 1:
		notes = append(notes, "matrix: one NUMA node and one last-level cache: no CPU is farther away than another by what the host says")
	case len(place.Parts(t, o.CPUs, topology.ByNode)) == 1:
		notes = append(notes, "matrix: one NUMA node: there are no pairs across nodes")
	}
	return notes
}

//go:build linux

package plan

import (
	"fmt"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/topology"
)

// A matrix measures pairs of CPUs. These are the largest numbers of pairs.
const (
	mostPairsAlone = 2304 // all pairs of 48 CPUs, unless the user asks for more
	mostPairsSuite = 700  // in a suite: all pairs of 26 CPUs, or a pair for any two of 24 caches
	mostPairsAmong = 30   // in a matrix of a run that also measures other scenarios
	mostPairsBrief = 12   // in a matrix of a quick suite
)

// matrixPlaces returns the pairs of CPUs that a matrix measures. Each pair has the form of a placement, and the two
// directions of a pair are two placements. The note says what was left out.
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
	return nil, "" // never reached, because the last mode always returns
}

// allPairs returns all pairs of CPUs, in the form of placements such as 0+1. On a host with many CPUs, it returns only
// one direction of each pair.
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

// ManyPairs reports whether a matrix of all pairs of CPUs has so many pairs that it measures only one subject.
func (o *Options) ManyPairs() bool {
	return o.AllPairs && len(o.CPUs)*(len(o.CPUs)-1) > mostPairsAlone
}

// sampleModes are the ways in which a matrix chooses pairs of CPUs. The first way chooses the most pairs, the last
// way the fewest.
var sampleModes = []string{"cpu", "llc", "node", "class"}

// samplePairs returns the pairs of CPUs that one of the sampleModes chooses.
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
		for _, b := range group[1:] { // within a group, one pair of each class is enough
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

// ClassPairs is the largest number of pairs of CPUs that are measured for a class. The median of 64 pairs is within a
// few percent of the median of all pairs.
const ClassPairs = 64

// pairsOf returns random pairs of CPUs of a class, which a matrix measurement visits. It returns nil if the placement
// is not a class.
func (o *Options) pairsOf(class topology.Class) [][2]int {
	if o.Topology == nil || !class.Valid() {
		return nil
	}
	return o.Topology.Pairs(o.CPUs, class, ClassPairs, o.Seed)
}

// classNote returns a note on how many pairs of CPUs represent a class. It is empty if each class has only one pair.
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

// MatrixNotes returns notes that say which pairs of CPUs a matrix does not measure on this host, and why.
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

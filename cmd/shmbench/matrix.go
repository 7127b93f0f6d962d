//go:build linux

package main

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/topology"
)

type matrixCmd struct {
	Sample string `enum:"auto,cpu,llc,node,class" default:"auto" help:"Pairs of all CPUs, or of some of each LLC or node, or one of each class: ${enum}."`
}

// Run runs the scenario.
func (c *matrixCmd) Run(s *session) error {
	s.sample = c.Sample
	return s.measure(defaults{time: 50 * time.Millisecond, warmup: 10 * time.Millisecond, count: 5, kills: 1}, commandScenarios["matrix"]...)
}

// Help describes the cells.
func (*matrixCmd) Help() string {
	return `Two processes, each on a CPU of its own, pass a cache line to and fro as fast as they
can: by compare-and-swap of one line (one-line), or each writes a line of its own that the
other reads (two-lines). Neither sleeps, pauses or yields. p50-ns is one way: half a round
trip. The first CPU of a pair starts, and its node holds the lines, so each direction is a
cell. Checked: both ends count as many trips.`
}

const (
	matrixBatch = 64      // round trips per sample
	matrixMost  = 1 << 30 // round trips of a repetition: their numbers fit the words

	// matrixPatience is how many looks an end waits for the other before it looks
	// whether the cell goes on: where others run on these CPUs, a batch may take
	// longer than the cell.
	matrixPatience = 1 << 16

	samplePairs = 240 // pairs of a matrix, unless somebody asks for more
	suitePairs  = 30  // of one among other scenarios
	briefPairs  = 12  // of a quick suite
)

// matrixSubjects are the ways of two CPUs to hand each other a line.
var matrixSubjects = []*subject{
	{By: "go", Prim: "one-line", Scenarios: []string{"matrix"}, Open: openOneLine},
	{By: "go", Prim: "two-lines", Scenarios: []string{"matrix"}, Open: openTwoLines, Brief: []string{}},
	{By: "test", Prim: "miscount", Scenarios: []string{"matrix"}, Hidden: true, Open: openMiscount},
}

// shuttle is an end of a pair in a matrix cell.
type shuttle interface {
	// Trips makes n round trips, of which the first is number from, and returns
	// how many: less than n where the cell stopped.
	Trips(from, n uint32) uint32
	// Finish tells the other end that the trip of this number will not come.
	Finish(number uint32)
	// Answer answers trips until Finish, and returns how many.
	Answer() uint32
}

// workMatrix times batches of round trips at one end, and answers at the other.
func workMatrix(t *thread) error {
	k, err := as[shuttle](t)
	if err != nil {
		return err
	}
	t.await()
	if t.index != 0 {
		t.slot.total = uint64(k.Answer())
		t.end()
		return nil
	}
	number := uint32(0)
	for t.next() && number < matrixMost {
		t0 := shmsync.Monotonic()
		made := k.Trips(number, matrixBatch)
		if made == matrixBatch {
			t.sample(t.counts, shmsync.Monotonic()-t0)
		}
		t.count(uint64(made))
		number += made
	}
	t.end()
	k.Finish(number)
	return nil
}

func collectMatrix(rep *repetition, a *account) {
	first, hist := a.slot(0)
	second, _ := a.slot(1)
	if first.total != second.total {
		rep.violate("%d round trips were made, and %d answered", first.total, second.total)
	}
	rep.Hist, rep.Div = newHist(hist), 2*matrixBatch
	delete(rep.Metrics, "ctxsw/op")
}

// oneLine is a word that both ends swap: from even to odd at one, from odd to even at
// the other.
type oneLine struct{ turn, phase *atomic.Uint32 }

func openOneLine(w *worker, _ int) (any, error) { return oneLine{w.Word(matrixFirst), &w.phase}, nil }

// Lines of the segment, far enough from each other that no prefetcher fetches both.
const (
	matrixFirst  = 0
	matrixSecond = 8
)

func (l oneLine) Trips(from, n uint32) uint32 {
	for made := range n {
		v := 2 * (from + made)
		for spins := 1; !l.turn.CompareAndSwap(v, v+1); spins++ {
			if spins%matrixPatience == 0 && l.phase.Load() == phaseStop {
				return made
			}
		}
	}
	return n
}

func (l oneLine) Finish(number uint32) {
	for !l.turn.CompareAndSwap(2*number, lastToken) {
	}
}

func (l oneLine) Answer() uint32 {
	for n := uint32(0); ; n++ {
		for !l.turn.CompareAndSwap(2*n+1, 2*n+2) {
			if l.turn.Load() == lastToken {
				return n
			}
		}
	}
}

// twoLines is a word for each direction.
type twoLines struct{ to, fro, phase *atomic.Uint32 }

func openTwoLines(w *worker, _ int) (any, error) {
	return twoLines{w.Word(matrixFirst), w.Word(matrixSecond), &w.phase}, nil
}

// Trips counts the trip that was begun last as made: Finish waits for its end.
func (l twoLines) Trips(from, n uint32) uint32 {
	for made := range n {
		v := from + made + 1
		l.to.Store(v)
		for spins := 1; l.fro.Load() != v; spins++ {
			if spins%matrixPatience == 0 && l.phase.Load() == phaseStop {
				return made + 1
			}
		}
	}
	return n
}

func (l twoLines) Finish(number uint32) {
	for l.fro.Load() != number {
	}
	l.to.Store(lastToken)
}

func (l twoLines) Answer() uint32 {
	for n := uint32(0); ; {
		v := l.to.Load()
		switch v {
		case n:
			continue
		case lastToken:
			return n
		}
		n = v
		l.fro.Store(v)
	}
}

// miscount answers right and counts wrong.
type miscount struct{ twoLines }

func openMiscount(w *worker, thread int) (any, error) {
	l, err := openTwoLines(w, thread)
	return miscount{l.(twoLines)}, err
}

func (l miscount) Answer() uint32 { return l.twoLines.Answer() + 1 }

// matrixPlaces gives the pairs of CPUs of a matrix as placements: each direction apart.
// The note says what was left out.
func (o *options) matrixPlaces() (places []string, note string) {
	if len(o.Places) > 0 {
		return o.Places, ""
	}
	if len(o.CPUs) < 2 {
		return []string{placeCross}, ""
	}
	most := samplePairs
	switch {
	case o.Brief:
		most = briefPairs
	case o.Sample == "":
		most = suitePairs
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

// sampleModes are the ways to choose pairs, the finest first.
var sampleModes = []string{"cpu", "llc", "node", "class"}

// samplePairs lists the pairs of a mode.
func (o *options) samplePairs(mode string) (places []string) {
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
		groups = parts(t, cpus, topology.ByPackage, topology.ByNode, topology.ByLLC)
	case "node":
		groups = parts(t, cpus, topology.ByPackage, topology.ByNode)
	}
	for i, group := range groups {
		found := map[topology.Class]bool{}
		for _, b := range group[1:] { // one of each class within
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

// matrixNotes says what a matrix cannot show on this host.
func (o *options) matrixNotes() (notes []string) {
	if _, note := o.matrixPlaces(); note != "" {
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
	case len(parts(t, o.CPUs, topology.ByNode)) == 1 && len(parts(t, o.CPUs, topology.ByLLC)) == 1:
		notes = append(notes, "matrix: one NUMA node and one last-level cache: no CPU is farther away than another by what the host says")
	case len(parts(t, o.CPUs, topology.ByNode)) == 1:
		notes = append(notes, "matrix: one NUMA node: there are no pairs across nodes")
	}
	return notes
}

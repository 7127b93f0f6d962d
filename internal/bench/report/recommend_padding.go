//go:build linux

package report

import (
	"fmt"
	"slices"

	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// padGain is the least gain for which rule R15 advises a larger distance between data of different CPUs.
const padGain = 1.1

// lineBytes is the size of a cache line on the CPUs for which the library is tuned.
const lineBytes = 64

// padLines returns lists of cells that differ only in the distance of the data. The distance ascends in each list.
// There is a list for each placement of the threads that the user named. Of the classes of pairs of CPUs on different
// cores, only the nearest and the farthest class have a list.
func (d *Document) padLines() (lines [][]*Cell) {
	var classes [][]*Cell
	for _, first := range d.find("padding") {
		line := d.find("padding", by(first.Subject), alike(first, "pad"))
		slices.SortFunc(line, func(a, b *Cell) int { return a.number("pad") - b.number("pad") })
		switch {
		case len(line) < 2 || line[0] != first:
		case first.class().Valid() && first.class().Base() != topology.SMT:
			classes = append(classes, line)
		case !first.class().Valid():
			lines = append(lines, line)
		}
	}
	slices.SortStableFunc(classes, func(a, b []*Cell) int { return topology.CompareClasses(a[0].class(), b[0].class()) })
	if len(classes) > 2 {
		classes = [][]*Cell{classes[0], classes[len(classes)-1]}
	}
	return append(lines, classes...)
}

// padContrasts returns the comparisons that rule R15 needs.
func padContrasts(d *Document) (list []*contrast) {
	for _, line := range d.padLines() {
		list = append(list, knees(line, "ops/s", padGain)...)
	}
	return list
}

// advisePadding is rule R15: how far apart the data of different CPUs should be. It names the smallest distance for
// which no larger distance is proven to be better. If several placements were measured, the advice is about the
// placement with the largest gain.
func advisePadding(d *Document, list []*contrast) *advice {
	var top *advice
	for _, line := range d.padLines() {
		first, knee := line[0], knee(line, list)
		a := &advice{Verdict: adviceNone, Text: fmt.Sprintf("counters %d bytes apart do not surely lose %.0f %% to counters that are farther apart", line[0].number("pad"), 100*(padGain-1))}
		for _, c := range line {
			a.Evidence = append(a.Evidence, c.evidence("ops/s"))
		}
		if q := between(line, list, len(line)-1, 0); q != nil {
			a.Effect = q.effectOf()
		}
		if knee > 0 {
			pad := line[knee].number("pad")
			a.Verdict, a.Effect = adviceDo, between(line, list, knee, knee-1).effectOf()
			a.Text = fmt.Sprintf("keep data of different CPUs at least %d bytes apart: %s increments a second there, %s at %d bytes, on CPUs %s (%s)", pad,
				formatMetric("ops/s", stats.Median(line[knee].Values("ops/s"))), formatMetric("ops/s", stats.Median(line[knee-1].Values("ops/s"))), line[knee-1].number("pad"),
				line[knee].onCPUs(), first.Params["place"])
			if pad > lineBytes {
				a.Text += "; these CPUs fetch lines in pairs"
			}
			a.Do = []string{fmt.Sprintf("type padded struct { v atomic.Uint64; _ [%d]byte }, allocated with an alignment of %d", pad-8, pad)}
		}
		if top == nil || a.Verdict == adviceDo && (top.Verdict != adviceDo || worse(a, top)) {
			top = a
		}
	}
	return top
}

// worse reports whether advice a is about a larger effect than advice b.
func worse(a, b *advice) bool { return a.Effect.Center > b.Effect.Center }

// onCPUs lists the CPUs on which the workers ran, from the first repetition that recorded them.
func (c *Cell) onCPUs() string {
	for _, r := range c.Reps {
		var cpus []int
		for _, w := range r.Workers {
			if !slices.Contains(cpus, w.CPU) {
				cpus = append(cpus, w.CPU)
			}
		}
		if len(cpus) > 0 {
			return topology.FormatList(slices.Sorted(slices.Values(cpus)))
		}
	}
	return "that it does not name"
}

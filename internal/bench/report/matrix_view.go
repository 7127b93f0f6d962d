//go:build linux

package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// pairs has the results of one subject in the matrix scenario, which measures each pair of CPUs.
type pairs struct {
	subject string
	cpus    []int                      // ordered so that near CPUs are next to each other
	medians map[[2]int]float64         // for each pair of CPUs: the median of the repetitions
	reps    map[[2]int]map[int]float64 // for each pair of CPUs: the value of each repetition, by its number
}

// matrices returns the results of all matrix measurements of a document, one value of type pairs for each subject.
func matrices(d *Document) (list []*pairs) {
	for i := range d.Cells {
		c := &d.Cells[i]
		if c.Scenario != "matrix" || len(c.Values(c.Unit)) == 0 || !place.IsPair(c.Params["place"]) {
			continue
		}
		cpus, err := place.ParsePair(c.Params["place"])
		if err != nil || len(cpus) != 2 {
			continue
		}
		at := slices.IndexFunc(list, func(m *pairs) bool { return m.subject == c.Subject })
		if at < 0 {
			at = len(list)
			list = append(list, &pairs{subject: c.Subject, medians: map[[2]int]float64{}, reps: map[[2]int]map[int]float64{}})
		}
		m := list[at]
		pair := [2]int{cpus[0], cpus[1]}
		m.medians[pair] = stats.Median(c.Values(c.Unit))
		m.reps[pair] = map[int]float64{}
		for n, r := range c.Reps {
			if v, ok := r.Metrics[c.Unit]; ok && r.Status == bench.StatusOK {
				m.reps[pair][n] = v
			}
		}
		for _, cpu := range cpus {
			if !slices.Contains(m.cpus, cpu) {
				m.cpus = append(m.cpus, cpu)
			}
		}
	}
	for _, m := range list {
		slices.Sort(m.cpus)
		if d.Topology != nil {
			if near := d.Topology.Near(m.cpus); len(near) == len(m.cpus) {
				m.cpus = near
			}
		}
	}
	return list
}

// value returns the median of the measurements from CPU a to CPU b, or NaN if there are none.
func (m *pairs) value(a, b int) float64 {
	if v, ok := m.medians[[2]int{a, b}]; ok {
		return v
	}
	return math.NaN()
}

// between returns the mean of the medians from CPU a to CPU b and from b to a.
func (m *pairs) between(a, b int) float64 {
	x, y := m.value(a, b), m.value(b, a)
	switch {
	case math.IsNaN(x):
		return y
	case math.IsNaN(y):
		return x
	}
	return (x + y) / 2
}

// grid returns the medians as a heat map.
func (m *pairs) grid(t *topology.Topology) *grid {
	g := &grid{from: "from", to: "to CPU", breaks: map[int]int{}, format: asTime}
	for i, a := range m.cpus {
		g.labels = append(g.labels, strconv.Itoa(a))
		row := make([]float64, len(m.cpus))
		for j, b := range m.cpus {
			row[j] = m.value(a, b)
		}
		g.values = append(g.values, row)
		if i > 0 && t != nil {
			switch t.Class(m.cpus[i-1], a).Base() {
			case topology.SameNode, topology.LLCNode:
				g.breaks[i] = 1
			case topology.Package, topology.NodePackage:
				g.breaks[i] = 2
			case topology.Remote:
				g.breaks[i] = 4
			}
		}
	}
	return g
}

// clusterStep is a limit of the method clusters: a merge distance is much larger than the earlier ones if it exceeds
// all of them by this factor.
const clusterStep = 1.3

// clusters finds groups of CPUs that are much nearer to each other than to other CPUs. It begins with one group for
// each CPU, and repeatedly merges the two groups with the least mean distance. Before a merge over a much larger
// distance than in all earlier merges, the existing groups become a level of the result. The levels go from small
// groups to large ones.
func (m *pairs) clusters() (levels [][][]int) {
	groups := make([][]int, len(m.cpus))
	for i, c := range m.cpus {
		groups[i] = []int{c}
	}
	last := 0.0
	for len(groups) > 1 {
		x, y, least := -1, -1, math.Inf(1)
		for i := range groups {
			for j := i + 1; j < len(groups); j++ {
				if d := m.mean(groups[i], groups[j]); d < least {
					x, y, least = i, j, d
				}
			}
		}
		if x < 0 {
			return levels // no pair of CPUs of different groups was measured
		}
		if last > 0 && least > clusterStep*last {
			level := make([][]int, len(groups))
			for i, g := range groups {
				level[i] = slices.Sorted(slices.Values(g))
			}
			levels = append(levels, level)
		}
		groups[x] = slices.Concat(groups[x], groups[y])
		groups = slices.Delete(groups, y, y+1)
		last = max(last, least)
	}
	return levels
}

// mean returns the mean distance between the CPUs of two groups, over the pairs that were measured. It returns infinity
// if no pair was measured.
func (m *pairs) mean(a, b []int) float64 {
	sum, n := 0.0, 0
	for _, x := range a {
		for _, y := range b {
			if v := m.between(x, y); !math.IsNaN(v) {
				sum, n = sum+v, n+1
			}
		}
	}
	if n == 0 {
		return math.Inf(1)
	}
	return sum / float64(n)
}

// clusterText returns a text that says which clusters of CPUs were found.
func (m *pairs) clusterText() string {
	levels := m.clusters()
	if len(m.cpus) < 3 {
		return "one pair: no clusters to find"
	}
	if len(levels) == 0 {
		return "no clusters: no pair is much farther than another"
	}
	var texts []string
	for _, level := range levels {
		var parts []string
		for _, g := range level {
			parts = append(parts, "{"+topology.FormatList(g)+"}")
		}
		texts = append(texts, strings.Join(parts, " "))
	}
	return "clusters: " + strings.Join(texts, "; ")
}

// mostColumns is the number of CPUs that fit into one line of a table.
const mostColumns = 14

// writeMatrix writes a table for each matrix of a document. In a measured pair, the CPU of the row writes the cache
// line first, and the CPU of the column answers.
func writeMatrix(w io.Writer, d *Document) {
	for _, m := range matrices(d) {
		fmt.Fprintf(w, "\nmatrix  %s, one way, in ns; the CPU of the row starts and holds the line\n", m.subject)
		fmt.Fprintln(w, cut("  "+m.clusterText()))
		if len(m.cpus) > mostColumns {
			writePairs(w, m, d.Topology)
			continue
		}
		rows := [][]string{{""}}
		for _, b := range m.cpus {
			rows[0] = append(rows[0], strconv.Itoa(b))
		}
		for _, a := range m.cpus {
			row := []string{strconv.Itoa(a)}
			for _, b := range m.cpus {
				row = append(row, orDash(m.value(a, b)))
			}
			rows = append(rows, row)
		}
		writeColumns(w, rows)
	}
	writeUnmeasured(w, d)
}

// writeUnmeasured writes a line for each reason why pairs of CPUs have no figure, with the number of these pairs.
func writeUnmeasured(w io.Writer, d *Document) {
	counts := map[string]int{}
	for i := range d.Cells {
		c := &d.Cells[i]
		if c.Scenario != "matrix" || !place.IsPair(c.Params["place"]) || len(c.Values(c.Unit)) > 0 {
			continue
		}
		why := c.Status + ": " + c.Reason
		if c.Status == bench.StatusOK {
			why = "too few samples: ask for more --time"
		}
		counts[c.Subject+" "+why]++
	}
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintln(w, cut(fmt.Sprintf("\nmatrix  %d pairs without a figure, %s", counts[why], why)))
	}
}

// writePairs writes the figures of a matrix by class of pairs of CPUs. It is for a matrix that is too wide for a table.
func writePairs(w io.Writer, m *pairs, t *topology.Topology) {
	rows := [][]string{{"pairs", "n", "least", "median", "most"}}
	classes := map[topology.Class][]float64{}
	for pair := range m.medians {
		if t != nil {
			class := t.Class(pair[0], pair[1])
			classes[class] = append(classes[class], m.value(pair[0], pair[1]))
		}
	}
	for _, class := range slices.SortedFunc(maps.Keys(classes), topology.CompareClasses) {
		if vs := classes[class]; len(vs) > 0 {
			rows = append(rows, []string{string(class), strconv.Itoa(len(vs)), orDash(slices.Min(vs)), orDash(stats.Median(vs)), orDash(slices.Max(vs))})
		}
	}
	writeColumns(w, rows)
}

func orDash(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return shortNumber(v)
}

// writeColumns writes rows in columns. All columns but the first one are aligned to the right.
func writeColumns(w io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], len(text))
		}
	}
	for _, row := range rows {
		line := fmt.Sprintf("  %-*s", widths[0], row[0])
		for i, text := range row[1:] {
			line += fmt.Sprintf("  %*s", widths[i+1], text)
		}
		fmt.Fprintln(w, cut(line))
	}
}

// matrixFigures returns the heat maps of a document.
func matrixFigures(d *Document) (list []*figure) {
	for _, m := range matrices(d) {
		caption := "One way between two processes, the median of the repetitions; the CPU at the left starts, and its node holds the line. " +
			strings.ToUpper(m.clusterText()[:1]) + m.clusterText()[1:] + "."
		if f := m.grid(d.Topology).draw("Matrix "+m.subject, caption); f != nil {
			list = append(list, f)
		}
	}
	return list
}

// mostPairs is the largest number of pairs of CPUs that a page lists one by one.
const mostPairs = 12

// byClass summarizes a matrix by class of pairs of CPUs. For each class and each subject it returns a bar with the
// median of the pairs, and their range.
func byClass(sc *bench.Scenario, cells []*Cell, t *topology.Topology) htmlGroup {
	g := htmlGroup{Label: "by how far apart the CPUs are", Unit: sc.Unit, Better: better(sc)}
	longest := 0.0
	var names []string
	for _, c := range cells {
		if !slices.Contains(names, c.name()) {
			names = append(names, c.name())
		}
	}
	slices.Sort(names)
	classes := map[topology.Class]bool{"": true}
	for _, c := range cells {
		if cpus, err := place.ParsePair(c.Params["place"]); err == nil && len(cpus) == 2 && t != nil {
			classes[t.Class(cpus[0], cpus[1])] = true
		}
	}
	for _, class := range slices.SortedFunc(maps.Keys(classes), topology.CompareClasses) {
		for _, name := range names {
			var vs []float64
			for _, c := range cells {
				cpus, err := place.ParsePair(c.Params["place"])
				of := topology.Class("")
				if err == nil && len(cpus) == 2 && t != nil {
					of = t.Class(cpus[0], cpus[1])
				}
				if c.name() == name && of == class {
					vs = append(vs, stats.Median(c.Values(c.Unit)))
				}
			}
			if len(vs) == 0 {
				continue
			}
			v := stats.Summarize(vs)
			longest = max(longest, v.Hi)
			g.Bars = append(g.Bars, htmlBar{Name: strings.TrimSpace(string(class) + " " + name), Value: formatMetric(sc.Unit, v.Center),
				Range: formatMetric(sc.Unit, v.Lo) + " to " + formatMetric(sc.Unit, v.Hi), Width: v.Center, Lo: v.Lo, Span: v.Hi - v.Lo})
		}
	}
	for i := range g.Bars {
		b := &g.Bars[i]
		b.Width, b.Lo, b.Span = 100*b.Width/longest, 100*b.Lo/longest, 100*b.Span/longest
	}
	return g
}

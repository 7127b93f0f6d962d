//go:build linux

package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// shapeFigures returns further figures of a scenario: bars that compare the subjects, how evenly the workers share a
// lock, between which threads the lock moves, and curves of the results against parameters.
func shapeFigures(sc *bench.Scenario, keys []string, groups map[string][]*Cell, all []*Cell) (list []*figure, err error) {
	add := func(f *figure) {
		if f != nil {
			list = append(list, f)
		}
	}
	switch sc.Name {
	case "wake", "herd":
		for _, cells := range groupsBut(all, "gap") {
			add(againstGap(cells))
		}
	case "stream":
		add(againstBandwidth(all))
	case "fence":
		add(againstBusy(all))
	case "oversub":
		for _, cells := range groupsBut(all, "load", "spin") {
			add(againstLoad(cells))
		}
	}
	for _, p := range sweeps[sc.Name] {
		for _, cells := range groupsBut(all, p.param) {
			add(p.draw(sc, notable(sc, cells)))
		}
	}
	if sc.Name == "rw" {
		for _, f := range ratioMaps(all) {
			add(f)
		}
	}
	for i, k := range keys {
		cells := groups[k]
		if len(cells) < 2 && slices.Contains([]string{"wake", "herd", "oversub", "stream", "fence"}, sc.Name) {
			continue // a curve has this cell as a point
		}
		if i == 0 && sc.Name != "oversub" {
			add(sideBySide(sc, k, cells))
		}
		if sc.Unit != "p50-ns" { // newSection draws the latencies of scenarios with this unit
			f, err := latencies(strings.TrimSpace("Latency "+k), notable(sc, cells))
			if err != nil {
				return nil, err
			}
			add(f)
		}
		add(fairnessBars("Fairness "+k, notable(sc, cells)))
		add(handoverBars("Handovers "+k, notable(sc, cells)))
	}
	return list, nil
}

// groupsBut puts cells into one group if they differ only in the subject and in the named parameters. It keeps the
// order of the cells.
func groupsBut(all []*Cell, but ...string) (list [][]*Cell) {
	at := map[string]int{}
	for _, c := range all {
		k := c.group(but...)
		i, ok := at[k]
		if !ok {
			i = len(list)
			at[k] = i
			list = append(list, nil)
		}
		list[i] = append(list[i], c)
	}
	return list
}

// sideBySide draws a bar for each subject that was measured with the same parameters, the best first.
func sideBySide(sc *bench.Scenario, label string, cells []*Cell) *figure {
	if len(cells) < 2 {
		return nil
	}
	var rows []row
	for _, c := range cells {
		v := stats.Summarize(c.Values(sc.Unit))
		rows = append(rows, row{name: c.name(), value: formatMetric(sc.Unit, v.Center), ours: c.ours(), parts: []float64{v.Center}, lo: v.Lo, hi: v.Hi})
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		if sc.Higher {
			a, b = b, a
		}
		return cmp.Compare(a.parts[0], b.parts[0])
	})
	// If one subject is far worse than the others, its bar is cut off, because otherwise the other bars would be too
	// short to read.
	middle := rows[len(rows)/2].parts[0]
	most, clipped := 0.0, ""
	for _, r := range rows {
		most = math.Max(most, r.hi)
	}
	if most > 8*middle && middle > 0 {
		most, clipped = 8*middle, " Bars with a gap are longer than that."
		for i := range rows {
			rows[i].broken = rows[i].parts[0] > most
			rows[i].parts[0], rows[i].lo, rows[i].hi = min(rows[i].parts[0], most), min(rows[i].lo, most), min(rows[i].hi, most)
		}
	}
	return drawRows(strings.TrimSpace("Side by side "+label), sc.Unit+", "+better(sc)+"; medians, and the range of the repetitions."+clipped, rows, nil, most)
}

// fairnessBars draws which share of all operations each worker did.
func fairnessBars(title string, cells []*Cell) *figure {
	var rows []row
	workers := 0
	for _, c := range cells {
		var ops []float64
		for _, rep := range c.Reps {
			if rep.Status != bench.StatusOK || len(rep.Workers) < 2 {
				continue
			}
			for i, w := range rep.Workers {
				if i == len(ops) {
					ops = append(ops, 0)
				}
				ops[i] += float64(w.Ops)
			}
		}
		total := 0.0
		for _, v := range ops {
			total += v
		}
		jain := c.Values("jain")
		if total == 0 || len(jain) == 0 {
			continue
		}
		for i := range ops {
			ops[i] /= total
		}
		workers = max(workers, len(ops))
		rows = append(rows, row{name: c.name(), value: "Jain " + formatMetric("jain", stats.Median(jain)), ours: c.ours(), parts: ops})
	}
	if len(rows) == 0 {
		return nil
	}
	return drawRows(title, "The part of all operations that each of "+strconv.Itoa(workers)+
		" workers did, one after another. Equal parts are fair: Jain's index is 1 then, and 1/n if one does it all.", rows, nil, 1)
}

// handoverNames are the names of bench.HandoverKinds in a legend.
var handoverNames = []string{"same thread", "same CPU", "same cache", "same node", "other node", "another, unpinned"}

// handoverBars draws which thread had the lock before the thread that takes it (see bench.HandoverKinds).
func handoverBars(title string, cells []*Cell) *figure {
	var rows []row
	seen := make([]bool, len(bench.HandoverKinds))
	for _, c := range cells {
		r := row{name: c.name(), ours: c.ours()}
		sum := 0.0
		for i, kind := range bench.HandoverKinds {
			v := 0.0
			if vs := c.Values(kind); len(vs) > 0 {
				v = mean(vs)
			}
			seen[i] = seen[i] || v > 0
			r.parts = append(r.parts, v)
			sum += v
		}
		if sum == 0 {
			continue
		}
		moved := 0.0
		for i := range r.parts {
			r.parts[i] /= sum
			if i != bench.FromSelf {
				moved += r.parts[i]
			}
		}
		r.value = strconv.Itoa(int(math.Round(100*moved))) + " % moved"
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return nil
	}
	legend := slices.Clone(handoverNames)
	for i := range legend {
		if !seen[i] {
			legend[i] = ""
		}
	}
	return drawRows(title, "From whom the lock was taken over. What moves little is quick and unfair; what moves far is dear.", rows, legend, 1)
}

func mean(vs []float64) float64 {
	sum := 0.0
	for _, v := range vs {
		sum += v
	}
	return sum / float64(len(vs))
}

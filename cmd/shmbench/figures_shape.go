//go:build linux

package main

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shapeFigures are the figures that show more than a median and its tail: who stands
// beside whom, how evenly a lock goes round and between whom, and how a figure changes
// with the gap or the load.
func shapeFigures(sc *scenario, keys []string, groups map[string][]*jsonCell, all []*jsonCell) (list []*figure, err error) {
	add := func(f *figure) {
		if f != nil {
			list = append(list, f)
		}
	}
	switch sc.name {
	case "wake", "herd":
		for _, cells := range groupsBut(all, "gap") {
			add(againstGap(cells))
		}
	case "oversub":
		for _, cells := range groupsBut(all, "load", "spin") {
			add(againstLoad(cells))
		}
	}
	for i, k := range keys {
		cells := groups[k]
		if len(cells) < 2 && slices.Contains([]string{"wake", "herd", "oversub"}, sc.name) {
			continue // it is a point of a curve
		}
		if i == 0 && sc.name != "oversub" {
			add(sideBySide(sc, k, cells))
		}
		if sc.unit != "p50-ns" { // the others have it already
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

// groupsBut collects the cells that differ in nothing but the subject and some
// parameters, in their order.
func groupsBut(all []*jsonCell, but ...string) (list [][]*jsonCell) {
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

// sideBySide has all who took part in a cell under each other, the best first.
func sideBySide(sc *scenario, label string, cells []*jsonCell) *figure {
	if len(cells) < 2 {
		return nil
	}
	var rows []row
	for _, c := range cells {
		v := summarize(c.values(sc.unit))
		rows = append(rows, row{name: c.Subject, value: formatMetric(sc.unit, v.Center), ours: c.ours(), parts: []float64{v.Center}, lo: v.Lo, hi: v.Hi})
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		if sc.higher {
			a, b = b, a
		}
		return cmp.Compare(a.parts[0], b.parts[0])
	})
	// One that is far behind leaves the others room: its bar ends at the edge.
	middle := rows[len(rows)/2].parts[0]
	most, clipped := 0.0, ""
	for _, r := range rows {
		most = math.Max(most, r.hi)
	}
	if most > 8*middle && middle > 0 {
		most, clipped = 8*middle, " Bars that end at the right edge are longer than that."
		for i := range rows {
			rows[i].parts[0], rows[i].lo, rows[i].hi = min(rows[i].parts[0], most), min(rows[i].lo, most), min(rows[i].hi, most)
		}
	}
	better := "less is better"
	if sc.higher {
		better = "more is better"
	}
	return drawRows(strings.TrimSpace("Side by side "+label), sc.unit+", "+better+"; medians, and the range of the repetitions."+clipped, rows, nil, most)
}

// fairnessBars shows what part of all operations each worker did.
func fairnessBars(title string, cells []*jsonCell) *figure {
	var rows []row
	workers := 0
	for _, c := range cells {
		var ops []float64
		for _, rep := range c.Reps {
			if rep.Status != statusOK || len(rep.Workers) < 2 {
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
		jain := c.values("jain")
		if total == 0 || len(jain) == 0 {
			continue
		}
		for i := range ops {
			ops[i] /= total
		}
		workers = max(workers, len(ops))
		rows = append(rows, row{name: c.Subject, value: "Jain " + formatMetric("jain", median(jain)), ours: c.ours(), parts: ops})
	}
	if len(rows) == 0 {
		return nil
	}
	return drawRows(title, "The part of all operations that each of "+strconv.Itoa(workers)+
		" workers did, one after another. Equal parts are fair: Jain's index is 1 then, and 1/n if one does it all.", rows, nil, 1)
}

// handoverNames are what a legend calls the kinds.
var handoverNames = []string{"same thread", "same CPU", "same cache", "same node", "other node", "another, unpinned"}

// handoverBars shows where a lock came from when it was taken.
func handoverBars(title string, cells []*jsonCell) *figure {
	var rows []row
	seen := make([]bool, len(handoverKinds))
	for _, c := range cells {
		r := row{name: c.Subject, ours: c.ours()}
		sum := 0.0
		for i, kind := range handoverKinds {
			v := 0.0
			if vs := c.values(kind); len(vs) > 0 {
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
			if i != fromSelf {
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

// curves makes a line of each name: medians against x, with the range as a band.
func curves(cells []*jsonCell, name func(*jsonCell) string, x func(*jsonCell) float64) (all []series) {
	at := map[string]int{}
	points := [][]*jsonCell{}
	for _, c := range cells {
		i, ok := at[name(c)]
		if !ok {
			i = len(all)
			at[name(c)] = i
			all, points = append(all, series{name: name(c)}), append(points, nil)
		}
		points[i] = append(points[i], c)
	}
	for i, list := range points {
		slices.SortStableFunc(list, func(a, b *jsonCell) int { return cmp.Compare(x(a), x(b)) })
		var back []xy
		for _, c := range list {
			v := summarize(c.values(c.Unit))
			all[i].line = append(all[i].line, xy{x(c), v.Center})
			all[i].band = append(all[i].band, xy{x(c), v.Lo})
			back = append(back, xy{x(c), v.Hi})
		}
		slices.Reverse(back)
		all[i].band = append(all[i].band, back...)
	}
	return slices.DeleteFunc(all, func(s series) bool { return len(s.line) < 2 })
}

// leastGap is where a curve has no gap at all.
const leastGap = 2 * time.Microsecond

// againstGap is the latency of a wake against how long the other had slept.
func againstGap(cells []*jsonCell) *figure {
	all := curves(cells, func(c *jsonCell) string { return c.Subject }, func(c *jsonCell) float64 {
		d, err := time.ParseDuration(c.Params["gap"])
		if err != nil { // of a file from elsewhere
			d = 0
		}
		return float64(max(d, leastGap))
	})
	for _, s := range all {
		for _, line := range [][]xy{s.line, s.band} {
			for i := range line {
				line[i].y = math.Max(line[i].y, 1)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return draw(strings.TrimSpace("Wake latency against gap "+cells[0].group("gap")),
		"From the wake to the first instruction, against how long the other had slept; at the left it had not. Medians, with the range of the repetitions.",
		axis{label: "gap", log: true, format: asTime}, axis{log: true, format: asTime}, all)
}

// againstLoad is throughput against the number of workers of each CPU, a line for each
// spin budget.
func againstLoad(cells []*jsonCell) *figure {
	all := curves(cells, func(c *jsonCell) string {
		if spin := c.Params["spin"]; spin != "auto" {
			return c.Subject + " " + spin
		}
		return c.Subject
	}, func(c *jsonCell) float64 { n, _ := strconv.ParseFloat(c.Params["load"], 64); return n })
	if len(all) == 0 {
		return nil
	}
	var loads []tick
	for _, s := range all {
		for _, p := range s.line {
			if t := (tick{p.x, strconv.FormatFloat(p.x, 'g', 3, 64)}); !slices.Contains(loads, t) {
				loads = append(loads, t)
			}
		}
	}
	return draw(strings.TrimSpace("Throughput against load "+cells[0].group("load", "spin")),
		"A line that falls is a lock whose waiters take the CPU from its holder. Times are spin budgets; the band is the range of the repetitions.",
		axis{label: "workers for each CPU", ticks: loads},
		axis{label: "ops/s", format: func(v float64) string { return formatMetric("ops/s", v) }}, all)
}

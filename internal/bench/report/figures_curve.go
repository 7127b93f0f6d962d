//go:build linux

package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// curves makes a line of the cells that have the same result of the function name. The function x returns the
// horizontal position of a cell. The line shows the medians of the main metric, with the range of the repetitions as a
// band.
func curves(cells []*Cell, name func(*Cell) string, x func(*Cell) float64) (all []series) {
	at := map[string]int{}
	points := [][]*Cell{}
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
		slices.SortStableFunc(list, func(a, b *Cell) int { return cmp.Compare(x(a), x(b)) })
		var back []xy
		for _, c := range list {
			v := stats.Summarize(c.Values(c.Unit))
			all[i].line = append(all[i].line, xy{x(c), v.Center})
			all[i].band = append(all[i].band, xy{x(c), v.Lo})
			back = append(back, xy{x(c), v.Hi})
		}
		slices.Reverse(back)
		all[i].band = append(all[i].band, back...)
	}
	return slices.DeleteFunc(all, func(s series) bool { return len(s.line) < 2 })
}

// leastGap is where the logarithmic axis shows a gap of 0. A gap is the time for which the woken thread had slept.
const leastGap = 2 * time.Microsecond

// againstGap draws the latency of a wake against the time for which the woken thread had slept.
func againstGap(cells []*Cell) *figure {
	all := curves(cells, func(c *Cell) string { return c.name() }, func(c *Cell) float64 {
		d, err := time.ParseDuration(c.Params["gap"])
		if err != nil { // only in a file that another program wrote
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

// againstLoad draws the throughput against the number of workers per CPU. There is a line for each spin budget, that
// is, for each time for which waiters spin.
func againstLoad(cells []*Cell) *figure {
	all := curves(cells, func(c *Cell) string {
		if spin := c.Params["spin"]; spin != "auto" {
			return c.name() + " " + spin
		}
		return c.name()
	}, func(c *Cell) float64 { n, _ := strconv.ParseFloat(c.Params["load"], 64); return n })
	if len(all) == 0 {
		return nil
	}
	return draw(strings.TrimSpace("Throughput against load "+cells[0].group("load", "spin")),
		"A line that falls is a lock whose waiters take the CPU from its holder. Times are spin budgets; the band is the range of the repetitions.",
		axis{label: "workers for each CPU", ticks: measuredAt(all)},
		axis{label: "ops/s", format: func(v float64) string { return formatMetric("ops/s", v) }}, all)
}

// sweep describes a figure that shows how the main metric of a scenario depends on one parameter.
type sweep struct {
	param, label string
	log          bool
	caption      string
}

var sweeps = map[string][]sweep{
	"rw": {{param: "read", label: "% of the holds that are shared",
		caption: "Where a lock that can be shared lets more through than one that cannot, it pays."}},
	"sem": {{param: "permits", label: "permits",
		caption: "More permits than workers are all the same."}},
	"multi": {{param: "keys", label: "keys", log: true,
		caption: "Where the line is level, more stripes gain nothing."}},
	"queue": {{param: "batch", label: "items at a time", log: true,
		caption: "What a batch saves is most of the cost of an item, until the batch is the cost."},
		{param: "capacity", label: "items that fit in", log: true,
			caption: "A queue that is full or empty has its ends wait for each other."}},
	"cond": {{param: "capacity", label: "items that fit in", log: true,
		caption: "A buffer that is full or empty has its ends wait for each other."}},
	"padding": {{param: "pad", label: "bytes between counters", log: true,
		caption: "Where the line is level, more distance gains nothing."}},
	"seq":  {{param: "wake", label: "waiters woken", caption: "The cost of a step for the thread that makes it."}},
	"open": {{param: "rate", label: "operations a second that are due", log: true, caption: "A line that rises is a rate that the lock comes near to not keeping up with."}},
	"herd": {{param: "wake", label: "processes woken", caption: "Until the last of them runs."}},
}

// draw returns a figure of the main metric against the parameter that the sweep names. It returns nil if no subject was
// measured with several values of this parameter.
func (p sweep) draw(sc *bench.Scenario, cells []*Cell) *figure {
	value := func(c *Cell) float64 { v, _ := strconv.ParseFloat(c.Params[p.param], 64); return v }
	all := curves(cells, (*Cell).name, value)
	if len(all) == 0 {
		return nil
	}
	x := axis{label: p.label, log: p.log, ticks: measuredAt(all)}
	x.log = x.log && !slices.ContainsFunc(x.ticks, func(t tick) bool { return t.at <= 0 })
	rest := strings.TrimSpace(cells[0].group(p.param))
	return draw(strings.TrimSpace(strings.ToUpper(sc.Name[:1])+sc.Name[1:]+" against "+p.param+" "+rest),
		p.caption+" Medians, with the range of the repetitions.", x,
		axis{label: sc.Unit, log: !sc.Higher, format: func(v float64) string { return formatMetric(sc.Unit, v) }}, all)
}

// measuredAt returns a tick for each x at which there is a point.
func measuredAt(all []series) (list []tick) {
	for _, s := range all {
		for _, p := range s.line {
			if t := (tick{p.x, strconv.FormatFloat(p.x, 'f', -1, 64)}); !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
	}
	return list
}

// ratioMaps draws heat maps of the throughput. The rows are percentages of reads, and the columns are numbers of
// workers. There is a map for each lock of the library that was measured with several percentages and with several
// numbers of workers.
func ratioMaps(cells []*Cell) (list []*figure) {
	for _, some := range groupsBut(cells, "read", "procs", "threads") {
		var names []string
		for _, c := range some {
			if c.ours() && !slices.Contains(names, c.name()) {
				names = append(names, c.name())
			}
		}
		for _, name := range names {
			var reads, workers []int
			value := map[[2]int]float64{}
			for _, c := range some {
				read, err := strconv.Atoi(c.Params["read"])
				if c.name() != name || err != nil {
					continue
				}
				reads, workers = append(reads, read), append(workers, c.workers())
				value[[2]int{read, c.workers()}] = stats.Median(c.Values(c.Unit))
			}
			reads, workers = slices.Compact(slices.Sorted(slices.Values(reads))), slices.Compact(slices.Sorted(slices.Values(workers)))
			if len(reads) < 2 || len(workers) < 2 {
				continue
			}
			g := grid{from: "% reads", to: "workers", format: func(v float64) string { return formatMetric("ops/s", v) }}
			for _, n := range workers {
				g.across = append(g.across, strconv.Itoa(n))
			}
			for _, read := range reads {
				row := make([]float64, len(workers))
				for i, n := range workers {
					v, ok := value[[2]int{read, n}]
					if row[i] = v; !ok {
						row[i] = math.NaN()
					}
				}
				g.labels, g.values = append(g.labels, strconv.Itoa(read)), append(g.values, row)
			}
			title := strings.TrimSpace("Reads and workers " + name + " " + some[0].group("read", "procs", "threads"))
			if f := g.draw(title, "Operations a second; dark is more."); f != nil {
				list = append(list, f)
			}
		}
	}
	return list
}

// ideal returns a line that shows perfect scaling: the throughput grows in proportion to the number of workers, up to
// the number of CPUs. The line begins at the point with the fewest workers, and at the highest one of several such
// points. It ends earlier if it would rise above 1.4 times the highest measured throughput.
func ideal(all []series, cpus int) (s series, ok bool) {
	most, from := 0.0, xy{}
	for _, s := range all {
		for i, p := range s.line {
			most = math.Max(most, p.y)
			if i == 0 && (from.x == 0 || p.x < from.x || p.x == from.x && p.y > from.y) {
				from = p
			}
		}
	}
	last := 0.0
	for _, s := range all {
		last = math.Max(last, s.line[len(s.line)-1].x)
	}
	if from.x <= 0 || from.y <= 0 || cpus < 2 || from.x >= float64(cpus) {
		return s, false
	}
	end := math.Min(last, math.Min(float64(cpus), 1.4*most*from.x/from.y))
	if end <= from.x {
		return s, false
	}
	s = series{name: "ideal", line: []xy{from, {end, from.y * end / from.x}}, ideal: true}
	if end == float64(cpus) && last > end {
		s.line = append(s.line, xy{last, s.line[1].y})
	}
	return s, true
}

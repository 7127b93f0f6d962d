//go:build linux

package report

import (
	"math"
	"slices"
	"strconv"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/shmsync/shmsync/internal/bench/stats"
)

// nines has the ticks of an axis for quantiles. The place of a quantile q on the axis is 1/(1-q).
var nines = []tick{{2, "50 %"}, {10, "90 %"}, {100, "99 %"}, {1e3, "99.9 %"}, {1e4, "99.99 %"}, {1e5, "99.999 %"}}

func asTime(ns float64) string { return formatMetric("x-ns", ns) }

// latencies draws the percentiles of the cells. As in the plots of HdrHistogram, the steps from 90 % to 99 %, to
// 99.9 % and so on are equally wide on the axis. The figure omits a quantile with fewer than ten samples above it.
func latencies(title string, cells []*Cell) (*figure, error) {
	all, err := lines(cells, func(total int64, b hdrhistogram.Bracket, div float64) (xy, bool) {
		q := b.Quantile / 100
		return xy{1 / (1 - q), math.Max(float64(b.ValueAt)/div, 0.1)}, float64(total)*(1-q) >= stats.TailMin
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return draw(title, "Latency by percentile, all repetitions together; quantiles with fewer than ten samples above them are left out.",
		axis{log: true, ticks: nines}, axis{log: true, format: asTime}, all), nil
}

// distribution draws the cumulative distribution of the samples: for each time, the share of the samples that are below
// it.
func distribution(title string, cells []*Cell) (*figure, error) {
	all, err := lines(cells, func(_ int64, b hdrhistogram.Bracket, div float64) (xy, bool) {
		return xy{math.Max(float64(b.ValueAt)/div, 100), b.Quantile}, true
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return draw(title, "How many of the kills, in percent, were made good after how long.",
		axis{label: "from the kill to the next owner", log: true, format: asTime},
		axis{label: "%", ticks: []tick{{0, "0"}, {25, "25"}, {50, "50"}, {75, "75"}, {100, "100"}}}, all), nil
}

// lines makes a line for each cell that has a histogram. It calls the function point for each bracket of the histogram,
// in ascending order, and adds the result to the line. If point returns false, the line ends.
func lines(cells []*Cell, point func(total int64, b hdrhistogram.Bracket, div float64) (xy, bool)) (all []series, err error) {
	for _, c := range cells {
		h, div, err := c.pooled()
		if err != nil {
			return nil, err
		}
		if h == nil {
			continue
		}
		s := series{name: c.name()}
		for _, b := range h.CumulativeDistribution() {
			p, ok := point(h.TotalCount(), b, div)
			if !ok {
				break
			}
			s.line = append(s.line, p)
		}
		if len(s.line) > 2 { // fewer points are no curve
			all = append(all, s)
		}
	}
	return all, nil
}

// scaling draws a metric against the number of workers. The median of the repetitions is a line, and their range is a
// band.
func scaling(title string, cells []*Cell, cpus int) (*figure, error) {
	byName := map[string][]*Cell{}
	var names []string
	for _, c := range cells {
		if len(c.Values(c.Unit)) == 0 {
			continue
		}
		if byName[c.name()] == nil {
			names = append(names, c.name())
		}
		byName[c.name()] = append(byName[c.name()], c)
	}
	var all []series
	for _, name := range names {
		line := byName[name]
		slices.SortFunc(line, func(a, b *Cell) int { return a.workers() - b.workers() })
		s := series{name: name}
		var back []xy
		for _, c := range line {
			v, x := stats.Summarize(c.Values(c.Unit)), float64(c.workers())
			s.line = append(s.line, xy{x, v.Center})
			s.band = append(s.band, xy{x, v.Lo})
			back = append(back, xy{x, v.Hi})
		}
		slices.Reverse(back)
		s.band = append(s.band, back...)
		if line[0].workers() != line[len(line)-1].workers() {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	unit := cells[0].Unit
	caption := "Median of the repetitions; the band is their range."
	if s, ok := ideal(all, cpus); ok {
		all = append(all, s)
		caption += " Ideal is what it would be if more workers, up to the number of CPUs, did each as much as the fewest do."
	}
	return draw(title, caption,
		axis{label: "workers (processes × threads)", ticks: measuredAt(all)},
		axis{label: unit, format: func(v float64) string { return formatMetric(unit, v) }}, all), nil
}

// workers returns the number of threads of a cell.
func (c *Cell) workers() int {
	procs, _ := strconv.Atoi(c.Params["procs"])
	threads, _ := strconv.Atoi(c.Params["threads"])
	return max(procs, 1) * max(threads, 1)
}

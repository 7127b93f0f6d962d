//go:build linux

package main

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// palette are colours that the colour-blind can tell apart, after Okabe and Ito.
var palette = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{230, 159, 0, 255}, {86, 180, 233, 255}, {0, 0, 0, 255}, {120, 120, 120, 255},
}

// series is a line of a figure: points, and for each the range of the repetitions,
// which is nil where there is none.
type series struct {
	name   string
	points plotter.XYs
	band   plotter.XYs // a polygon
}

// figure is a picture with a caption.
type figure struct {
	Title, Caption string
	SVG            template.HTML
}

// curves draws lines. Axes of which log is set are logarithmic.
func curves(title, caption, x, y string, logX, logY bool, ticks plot.Ticker, all []series) (*figure, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = logY, logY
	if logX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, nsTicks{}
	}
	if ticks != nil {
		p.X.Tick.Marker = ticks
	}
	for i, s := range all {
		c := palette[i%len(palette)]
		if len(s.band) > 0 {
			area, err := plotter.NewPolygon(s.band)
			if err != nil {
				return nil, err
			}
			area.Color, area.LineStyle.Width = color.RGBA{c.R, c.G, c.B, 40}, 0
			p.Add(area)
		}
		line, err := plotter.NewLine(s.points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = c, vg.Points(1.6)
		if i >= len(palette) {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		p.Add(line)
		p.Legend.Add(s.name, line)
	}
	canvas := vgsvg.New(17*vg.Centimeter, 9*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	svg := b.String()
	at := strings.Index(svg, "<svg")
	if at < 0 {
		return nil, fmt.Errorf("the figure %q was not drawn", title)
	}
	return &figure{title, caption, template.HTML(svg[at:])}, nil
}

// nsTicks labels a logarithmic axis of nanoseconds.
type nsTicks struct{}

func (nsTicks) Ticks(lo, hi float64) []plot.Tick {
	ticks := plot.LogTicks{Prec: -1}.Ticks(lo, hi)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = formatMetric("x-ns", ticks[i].Value)
		}
	}
	return ticks
}

// nines labels an axis of 1/(1-q) by q.
type nines struct{}

func (nines) Ticks(lo, hi float64) (ticks []plot.Tick) {
	for i, label := range []string{"min", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"} {
		if v := math.Pow10(i); v >= lo && v <= hi*1.01 {
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return append(ticks, plot.Tick{Value: 2, Label: "50 %"})
}

// latencies are the percentiles of some cells, on an axis of nines as
// HdrHistogram's plots have it. A quantile with fewer than ten samples above it is
// left out.
func latencies(title string, cells []*jsonCell) (*figure, error) {
	var all []series
	for _, c := range cells {
		h, div, err := c.pooled()
		if err != nil {
			return nil, err
		}
		if h == nil || h.TotalCount() < 20 {
			continue
		}
		s := series{name: c.Subject}
		for _, b := range h.CumulativeDistribution() {
			q := b.Quantile / 100
			if over := float64(h.TotalCount()) * (1 - q); over < tailMin {
				break
			}
			s.points = append(s.points, plotter.XY{X: 1 / (1 - q), Y: math.Max(float64(b.ValueAt)/div, 0.1)})
		}
		if len(s.points) > 1 {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return curves(title, "Latency by percentile, all repetitions together; quantiles with fewer than ten samples above them are left out.",
		"", "", true, true, nines{}, all)
}

// distribution is how much of the samples lie below a time.
func distribution(title string, cells []*jsonCell) (*figure, error) {
	var all []series
	for _, c := range cells {
		h, div, err := c.pooled()
		if err != nil {
			return nil, err
		}
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		s := series{name: c.Subject}
		for _, b := range h.CumulativeDistribution() {
			s.points = append(s.points, plotter.XY{X: math.Max(float64(b.ValueAt)/div/1e6, 1e-4), Y: b.Quantile})
		}
		if len(s.points) > 1 {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return curves(title, "How many of the kills, in percent, were made good after how long.", "ms from the kill to the next owner", "%", true, false, nil, all)
}

// scaling is a metric against the number of workers: the median of the repetitions,
// and their range as a band.
func scaling(title string, cells []*jsonCell) (*figure, error) {
	byName := map[string][]*jsonCell{}
	var names []string
	for _, c := range cells {
		if len(c.values(c.Unit)) == 0 {
			continue
		}
		if byName[c.Subject] == nil {
			names = append(names, c.Subject)
		}
		byName[c.Subject] = append(byName[c.Subject], c)
	}
	var all []series
	for _, name := range names {
		line := byName[name]
		slices.SortFunc(line, func(a, b *jsonCell) int { return a.workers() - b.workers() })
		s := series{name: name}
		var back plotter.XYs
		for _, c := range line {
			v, x := summarize(c.values(c.Unit)), float64(c.workers())
			s.points = append(s.points, plotter.XY{X: x, Y: v.Center})
			s.band = append(s.band, plotter.XY{X: x, Y: v.Lo})
			back = append(back, plotter.XY{X: x, Y: v.Hi})
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
	return curves(title, "Median of the repetitions; the band is their range.", "workers (processes × threads)", cells[0].Unit, false, false, nil, all)
}

// workers is how many threads a cell has.
func (c *jsonCell) workers() int {
	procs, _ := strconv.Atoi(c.Params["procs"])
	threads, _ := strconv.Atoi(c.Params["threads"])
	return max(procs, 1) * max(threads, 1)
}

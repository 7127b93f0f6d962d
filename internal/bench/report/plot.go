//go:build linux

package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"unicode/utf8"
)

// The figures do not use a plot library. The worker processes of a measurement run this program, too, and would have
// the library in memory. Some measurements kill workers, and a process with more memory takes longer to die: the
// slowest deaths would take a third of a millisecond more.

// xy is a point of a curve.
type xy struct{ x, y float64 }

// series is a line of a figure. The field band is a polygon that shows the range of the repetitions, or nil.
type series struct {
	name string
	line []xy
	band []xy

	ideal bool // the points are computed, not measured
}

// figure is a picture with a caption.
type figure struct {
	Title, Caption string
	SVG            template.HTML
}

// axis maps values to coordinates on the page.
type axis struct {
	label    string
	log      bool
	ticks    []tick // nil: the method marks chooses the ticks
	format   func(float64) string
	lo, hi   float64 // range of the values
	from, to float64 // range on the page
}

type tick struct {
	at    float64
	label string
}

// These constants are the position of the plot in a figure, in the figure's own units.
const (
	plotWidth, plotHeight = 750.0, 330.0
	plotLeft, plotRight   = 64.0, 540.0
	plotTop, plotBottom   = 12.0, 286.0
	legendLine            = 17.0
)

// palette has colours that colour-blind readers can tell apart, after Okabe and Ito. All are visible on white and on
// black.
var palette = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#b8860b"}

// cover extends the axis so that it contains the given values.
func (a *axis) cover(values ...float64) {
	for _, v := range values {
		a.lo, a.hi = math.Min(a.lo, v), math.Max(a.hi, v)
	}
}

// place returns the coordinate on the page at which the value v is drawn.
func (a *axis) place(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		lo, hi, v = math.Log10(lo), math.Log10(hi), math.Log10(v)
	}
	if hi <= lo {
		return (a.from + a.to) / 2
	}
	return a.from + (a.to-a.from)*(v-lo)/(hi-lo)
}

// marks returns the ticks that lie within the range of the axis.
func (a *axis) marks() (list []tick) {
	all := a.ticks
	switch {
	case all != nil:
	case a.log:
		for _, steps := range [][]float64{{1}, {1, 2, 5}, {1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9}} {
			all = nil
			inside := 0
			for e := math.Floor(math.Log10(a.lo)); e <= math.Log10(a.hi)+1; e++ {
				for _, s := range steps {
					v := s * math.Pow(10, e)
					all = append(all, tick{v, a.format(v)})
					if v >= a.lo && v <= a.hi {
						inside++
					}
				}
			}
			if inside > 1 {
				break
			}
		}
	default:
		step := math.Pow(10, math.Floor(math.Log10(math.Max(a.hi-a.lo, 1e-9)))) / 2
		if (a.hi-a.lo)/step > 12 {
			step *= 2
		}
		for v := math.Ceil(a.lo/step) * step; v <= a.hi; v += step {
			all = append(all, tick{v, a.format(v)})
		}
	}
	for _, t := range all {
		if t.at >= a.lo*(1-1e-9) && t.at <= a.hi*(1+1e-9) {
			list = append(list, t)
		}
	}
	return list
}

// draw returns a figure with all of the given lines.
func draw(title, caption string, x, y axis, all []series) *figure {
	x.from, x.to, y.from, y.to = plotLeft, plotRight, plotBottom, plotTop
	x.lo, x.hi, y.lo, y.hi = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	if !y.log {
		y.cover(0)
	}
	for _, s := range all {
		for _, p := range append(s.line, s.band...) {
			x.cover(p.x)
			y.cover(p.y)
		}
	}
	var b strings.Builder
	width, height := plotWidth, math.Max(plotHeight, plotTop+16+legendLine*float64(len(all)))
	for _, s := range all {
		width = math.Max(width, plotRight+46+7*float64(utf8.RuneCountInString(s.name)))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, template.HTMLEscapeString(title))
	for _, t := range x.marks() {
		at := x.place(t.at)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`,
			at, at, plotTop, plotBottom, at, plotBottom+16, template.HTMLEscapeString(t.label))
	}
	for _, t := range y.marks() {
		at := y.place(t.at)
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, plotRight, at, at, plotLeft-6, at+4, template.HTMLEscapeString(t.label))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`, (plotLeft+plotRight)/2, plotHeight-8, template.HTMLEscapeString(x.label))
	fmt.Fprintf(&b, `<text transform="translate(12 %g) rotate(-90)" text-anchor="middle">%s</text>`, (plotTop+plotBottom)/2, template.HTMLEscapeString(y.label))
	for i, s := range all {
		color, dashes := lineStyle(all, i)
		if s.ideal {
			color, dashes = "var(--soft, #57606a)", ` stroke-dasharray="2 4"`
		}
		if len(s.band) > 0 {
			fmt.Fprintf(&b, `<polygon points="%s" fill="%s" opacity=".18"/>`, points(s.band, &x, &y), color)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`, points(s.line, &x, &y), color, dashes)
		at := plotTop + 8 + legendLine*float64(i)
		fmt.Fprintf(&b, `<line x1="%g" x2="%g" y1="%g" y2="%g" stroke="%s" stroke-width="3"%s/><text x="%g" y="%g">%s</text>`,
			plotRight+12, plotRight+34, at, at, color, dashes, plotRight+40, at+4, template.HTMLEscapeString(s.name))
	}
	b.WriteString("</svg>")
	return &figure{title, caption, template.HTML(b.String())}
}

// lineStyle returns the colour and the dashes of line i of a figure. Lines of the same subject have the same colour and
// different dashes.
func lineStyle(all []series, i int) (color, dashed string) {
	color, pattern := palette[i%len(palette)], ""
	if i >= len(palette) {
		pattern = dashes[1]
	}
	if st := styleOf(all[i].name); st.color != "" {
		color, pattern = st.color, st.dashes
		again := 0
		for _, s := range all[:i] {
			if styleOf(s.name) == st {
				again++
			}
		}
		if again > 0 {
			pattern = fmt.Sprint(3*again+1, " ", 2)
		}
	}
	if pattern != "" {
		dashed = ` stroke-dasharray="` + pattern + `"`
	}
	return color, dashed
}

func points(list []xy, x, y *axis) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%.1f,%.1f ", x.place(p.x), y.place(p.y))
	}
	return strings.TrimSpace(b.String())
}

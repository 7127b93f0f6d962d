//go:build linux

package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"unicode/utf8"
)

// row is a horizontal bar of a figure, which consists of one or several parts.
type row struct {
	name   string
	value  string // text at the end of the bar
	ours   bool
	parts  []float64
	lo, hi float64 // the range that is drawn on the bar; both are 0 if there is none
	broken bool    // the bar is cut off, and is drawn with a gap
}

// These constants are the layout of a figure with horizontal bars, in its own units.
const (
	rowHeight            = 24.0
	rowsRight            = 640.0
	rowsTop, legendSpace = 10.0, 26.0

	namesLeast, namesMost = 120.0, 320.0 // width of the names, left of the bars
	letterWidth           = 7.4          // approximate width of a bold letter
)

// namesWidth returns the width that the names of the bars need.
func namesWidth(list []row) float64 {
	longest := 0
	for _, r := range list {
		longest = max(longest, utf8.RuneCountInString(r.name))
	}
	return math.Min(math.Max(namesLeast, letterWidth*float64(longest)+14), namesMost)
}

// drawRows returns a figure of horizontal bars. The parameter legend has the names of the parts of a bar. All bars have
// the same scale. It ends at the value in the parameter most, or at the longest bar if most is 0.
func drawRows(title, caption string, list []row, legend []string, most float64) *figure {
	if most == 0 {
		for _, r := range list {
			sum := r.hi
			total := 0.0
			for _, p := range r.parts {
				total += p
			}
			most = math.Max(most, math.Max(sum, total))
		}
	}
	if most <= 0 || math.IsInf(most, 0) || math.IsNaN(most) {
		most = 1
	}
	height := rowsTop + rowHeight*float64(len(list)) + 4
	if len(legend) > 0 {
		height += legendSpace
	}
	rowsLeft := namesWidth(list)
	scale := (rowsRight - rowsLeft) / most
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-label="%s">`,
		plotWidth, height, template.HTMLEscapeString(title))
	for i, r := range list {
		y := rowsTop + rowHeight*float64(i)
		weight := ""
		if r.ours {
			weight = ` font-weight="600"`
		}
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end"%s>%s</text>`, rowsLeft-8, y+15, weight, template.HTMLEscapeString(r.name))
		at := rowsLeft
		for k, p := range r.parts {
			color := palette[k%len(palette)]
			if st := styleOf(r.name); len(legend) == 0 && len(r.parts) == 1 && st.color != "" {
				color = st.color
			} else if len(legend) == 0 && len(r.parts) == 1 && !r.ours {
				color = "#9aa4af"
			}
			width := math.Max(p*scale, 0)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%g" fill="%s" stroke="var(--card)" stroke-width="1"/>`,
				at, y+3, width, rowHeight-7, color)
			at += width
		}
		end := at
		if r.hi > 0 {
			lo, hi := rowsLeft+r.lo*scale, rowsLeft+r.hi*scale
			end = math.Max(at, hi)
			fmt.Fprintf(&b, `<line class="range" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, lo, hi, y+11.5, y+11.5)
		}
		if r.broken {
			fmt.Fprintf(&b, `<path class="gap" d="M%.1f %.1f l6 %g m5 0 l-6 -%g" stroke="var(--card, #fff)" stroke-width="4" fill="none"/>`, rowsRight-36, y+2, rowHeight-5, rowHeight-5)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f">%s</text>`, end+8, y+15, template.HTMLEscapeString(r.value))
	}
	at := rowsLeft
	for k, name := range legend {
		if name == "" {
			continue
		}
		y := height - legendSpace + 8
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="11" height="11" fill="%s"/><text x="%.1f" y="%.1f">%s</text>`,
			at, y, palette[k%len(palette)], at+16, y+10, template.HTMLEscapeString(name))
		at += 28 + 7*float64(len(name))
	}
	b.WriteString("</svg>")
	return &figure{title, caption, template.HTML(b.String())}
}

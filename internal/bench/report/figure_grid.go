//go:build linux

package report

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// grid is a table of numbers that is drawn as a heat map. A cell whose value is not a number (NaN) is left blank.
type grid struct {
	labels   []string
	across   []string    // labels of the columns, if they differ from those of the rows
	values   [][]float64 // by row
	breaks   map[int]int // width of the border before a row or a column, by its index
	from, to string      // names of the two axes
	format   func(float64) string
}

// These constants are sizes of a heat map.
const (
	gridLeft, gridTop  = 70.0, 40.0
	gridSide, gridCell = 460.0, 44.0 // at most
	gridReadable       = 26.0        // cells that are at least this wide show their value
)

// heat has the colours of a heat map, from the least to the greatest value. They also get darker, so that a reader can
// tell them apart without colour (a reversed viridis).
var heat = [][3]float64{{253, 231, 37}, {94, 201, 98}, {33, 145, 140}, {59, 82, 139}, {68, 1, 84}}

// shade returns the colour for a share from 0 to 1, and the colour of text on that colour.
func shade(x float64) (fill, text string) {
	x = math.Min(math.Max(x, 0), 1) * float64(len(heat)-1)
	i := min(int(x), len(heat)-2)
	var c [3]float64
	for k := range c {
		c[k] = heat[i][k] + (heat[i+1][k]-heat[i][k])*(x-float64(i))
	}
	text = "#fff"
	if 0.299*c[0]+0.587*c[1]+0.114*c[2] > 130 {
		text = "#000"
	}
	return fmt.Sprintf("#%02x%02x%02x", int(c[0]), int(c[1]), int(c[2])), text
}

// numbers returns the values of the grid that are numbers, sorted.
func (g *grid) numbers() (all []float64) {
	for _, row := range g.values {
		for _, v := range row {
			if !math.IsNaN(v) {
				all = append(all, v)
			}
		}
	}
	slices.Sort(all)
	return all
}

// draw returns a figure of the grid, or nil if the grid is empty.
func (g *grid) draw(title, caption string) *figure {
	all := g.numbers()
	if len(all) == 0 {
		return nil
	}
	lo, hi := all[0], all[len(all)-1]
	if i := slices.IndexFunc(all, func(v float64) bool { return v > 0 }); i > 0 {
		lo = all[i] // zero has no logarithm
	}
	share := func(v float64) float64 {
		if hi <= lo || v <= lo || lo <= 0 {
			return 0
		}
		return math.Log(v/lo) / math.Log(hi/lo)
	}
	across := bench.Or(g.across, g.labels...)
	side := min(gridCell, gridSide/float64(max(len(g.labels), len(across))))
	end, wide := side*float64(len(g.labels)), side*float64(len(across))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %.1f" role="img" aria-label="%s">`, plotWidth, max(gridTop+end, 150)+14, template.HTMLEscapeString(title))
	fmt.Fprintf(&b, `<text x="%g" y="13">%s →</text><text x="%g" y="13" text-anchor="end">%s ↓</text>`,
		gridLeft, template.HTMLEscapeString(g.to), gridLeft-6, template.HTMLEscapeString(g.from))
	step := max(1, int(math.Ceil(15/side)))
	for j := 0; j < len(across); j += step {
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`, gridLeft+side*(float64(j)+0.5), gridTop-6, template.HTMLEscapeString(across[j]))
	}
	for i, label := range g.labels {
		if i%step == 0 {
			fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end">%s</text>`, gridLeft-6, gridTop+side*(float64(i)+0.5)+4, template.HTMLEscapeString(label))
		}
		for j, v := range g.values[i] {
			if math.IsNaN(v) {
				continue
			}
			fill, text := shade(share(v))
			x, y := gridLeft+side*float64(j), gridTop+side*float64(i)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s %s %s %s: %s</title></rect>`, x, y, side, side, fill,
				template.HTMLEscapeString(g.from), template.HTMLEscapeString(label), template.HTMLEscapeString(g.to), template.HTMLEscapeString(across[j]), template.HTMLEscapeString(g.format(v)))
			if side >= gridReadable {
				fmt.Fprintf(&b, `<text class="in" style="fill:%s" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, text, x+side/2, y+side/2+4, template.HTMLEscapeString(shortNumber(v)))
			}
		}
	}
	for _, at := range slices.Sorted(maps.Keys(g.breaks)) {
		strength := g.breaks[at]
		x := side * float64(at)
		fmt.Fprintf(&b, `<path class="border" d="M%.1f %g v%.1f M%g %.1f h%.1f" stroke-width="%d"/>`, gridLeft+x, gridTop, end, gridLeft, gridTop+x, wide, strength)
	}
	const steps = 5
	for i := range steps {
		v := lo * math.Pow(hi/lo, float64(i)/(steps-1))
		fill, _ := shade(float64(i) / (steps - 1))
		if hi <= lo && i > 0 || lo <= 0 {
			break
		}
		y := gridTop + 20*float64(i)
		fmt.Fprintf(&b, `<rect x="%g" y="%.1f" width="16" height="20" fill="%s"/><text x="%g" y="%.1f">%s</text>`, gridLeft+wide+20, y, fill, gridLeft+wide+42, y+14, template.HTMLEscapeString(g.format(v)))
	}
	b.WriteString("</svg>")
	caption += fmt.Sprintf(" Least %s, median %s, most %s.", g.format(all[0]), g.format(stats.Median(all)), g.format(hi))
	return &figure{title, caption, template.HTML(b.String())}
}

// shortNumber renders a number with at most four characters.
func shortNumber(v float64) string {
	switch {
	case v >= 999_500:
		return fmt.Sprintf("%.1fM", v/1e6)
	case v >= 9999:
		return fmt.Sprintf("%.0fk", v/1000)
	case v >= 10:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

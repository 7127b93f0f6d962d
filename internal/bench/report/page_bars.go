//go:build linux

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// htmlGroup has measurements that can be compared. The page shows a bar for each of them.
type htmlGroup struct {
	Label  string
	Unit   string
	Better string
	Scale  string    // the range of the scale, if the scale does not begin at 0
	Marks  []float64 // places of the marks of the scale, in percent
	Bars   []htmlBar

	Recovery []recovery // of crash cells
}

// htmlBar is the bar of one measurement. It shows the median, and the range of the repetitions.
type htmlBar struct {
	Name, Value, Range, Ratio string
	Ours                      bool
	Color                     string  // the subject has this colour on the whole page
	Width, Lo, Span           float64 // in percent of the width of the scale
}

func newGroup(sc *bench.Scenario, label string, cells []*Cell) htmlGroup {
	g := htmlGroup{Label: label, Unit: sc.Unit, Better: better(sc)}
	slices.SortStableFunc(cells, func(a, b *Cell) int {
		if sc.Higher {
			a, b = b, a
		}
		return cmp.Compare(stats.Median(a.Values(sc.Unit)), stats.Median(b.Values(sc.Unit)))
	})
	g.Recovery = recoveryTable(cells)
	var all []stats.Interval
	for _, c := range cells {
		all = append(all, stats.Summarize(c.Values(sc.Unit)))
	}
	scale := scaleOf(all)
	g.Scale, g.Marks = scale.label(sc.Unit), scale.marks()
	for i, c := range cells {
		v := all[i]
		b := htmlBar{
			Name: c.name(), Ours: c.ours(), Color: styleOf(c.Subject).color, Value: formatMetric(sc.Unit, v.Center),
			Range: formatMetric(sc.Unit, v.Lo) + " to " + formatMetric(sc.Unit, v.Hi),
			Width: scale.at(v.Center), Lo: scale.at(v.Lo), Span: scale.at(v.Hi) - scale.at(v.Lo),
		}
		if c.Ratio != nil {
			b.Ratio = formatRatio(c.Ratio.Center) + " × " + c.Ref
		}
		g.Bars = append(g.Bars, b)
	}
	return g
}

func better(sc *bench.Scenario) string {
	if sc.Higher {
		return "more is better"
	}
	return "less is better"
}

// manyTimes is the greatest ratio between the medians of a group for which the scale is linear. With a greater ratio,
// the short bars would be invisible, so the scale is logarithmic.
const manyTimes = 20

// barScale maps figures to lengths of bars. If the field lo is 0, the scale is linear and goes from 0 to hi. Otherwise
// the scale is logarithmic and goes from lo to hi.
type barScale struct{ lo, hi float64 }

// scaleOf returns a scale that suits the given medians and ranges.
func scaleOf(all []stats.Interval) barScale {
	least, most, hi := math.Inf(1), 0.0, 0.0
	for _, v := range all {
		hi = math.Max(hi, v.Hi)
		if v.Center > 0 {
			least, most = math.Min(least, v.Center), math.Max(most, v.Center)
		}
	}
	if most <= manyTimes*least {
		return barScale{hi: hi}
	}
	// The scale begins below the shortest bar, so that this bar is visible, too.
	return barScale{math.Pow(10, math.Floor(math.Log10(least/1.25))), math.Pow(10, math.Ceil(math.Log10(hi)))}
}

// at returns the place of the value v on the scale, in percent of the width of the scale.
func (s barScale) at(v float64) float64 {
	switch {
	case s.hi <= 0:
		return 0
	case s.lo == 0:
		return 100 * v / s.hi
	case v <= s.lo:
		return 0
	}
	return 100 * math.Log10(v/s.lo) / math.Log10(s.hi/s.lo)
}

// label returns a text that describes a logarithmic scale. It returns an empty string for a linear scale.
func (s barScale) label(unit string) string {
	if s.lo == 0 {
		return ""
	}
	return fmt.Sprintf("logarithmic from %s to %s, lines at each power of ten", formatMetric(unit, s.lo), formatMetric(unit, s.hi))
}

// marks returns the places of the powers of ten on a logarithmic scale. It returns none for a linear scale.
func (s barScale) marks() (list []float64) {
	if s.lo == 0 {
		return nil
	}
	for v := s.lo * 10; v < s.hi*0.99; v *= 10 {
		list = append(list, s.at(v))
	}
	return list
}

//go:build linux

package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// alpha is the chance of calling two equal cells different.
const alpha = 0.05

// comparison is a cell in two result files.
type comparison struct {
	Key, Unit string
	Old, New  benchmath.Summary
	Delta     string // as benchstat has it: "~" where the difference may be chance
	Test      string
	Changed   bool
	Better    bool
}

// CompareDocuments pairs the cells of two documents; missing counts those that were
// not measured in both.
func CompareDocuments(before, after *Document, metric string) (all []comparison, missing int) {
	for i := range before.Cells {
		a := &before.Cells[i]
		at := slices.IndexFunc(after.Cells, func(b Cell) bool { return b.Key == a.Key })
		if at < 0 {
			missing++
			continue
		}
		unit := metric
		if unit == "" {
			unit = a.Unit
		}
		x, y := a.Values(unit), after.Cells[at].Values(unit)
		if len(x) == 0 || len(y) == 0 {
			missing++
			continue
		}
		all = append(all, compareSamples(a.Key, unit, x, y))
	}
	for i := range after.Cells {
		key := after.Cells[i].Key
		if !slices.ContainsFunc(before.Cells, func(a Cell) bool { return a.Key == key }) {
			missing++
		}
	}
	return all, missing
}

func compareSamples(key, unit string, before, after []float64) comparison {
	math := benchmath.AssumeNothing
	x := benchmath.NewSample(slices.Clone(before), &benchmath.DefaultThresholds)
	y := benchmath.NewSample(slices.Clone(after), &benchmath.DefaultThresholds)
	c := comparison{Key: key, Unit: unit, Old: math.Summary(x, stats.Confidence), New: math.Summary(y, stats.Confidence)}
	test := math.Compare(x, y)
	c.Delta, c.Test = test.FormatDelta(c.Old.Center, c.New.Center), test.String()
	c.Changed = test.P < alpha && c.Delta != "~"
	c.Better = c.Changed && (c.New.Center > c.Old.Center) == bench.BetterHigher[unit]
	return c
}

// Differences tells what two environments do not share of what figures depend on.
func Differences(a, b *host.Environment) (list []string) {
	for _, d := range []struct{ what, old, new string }{
		{"CPU", a.CPU, b.CPU}, {"number of CPUs", fmt.Sprint(a.CPUs), fmt.Sprint(b.CPUs)},
		{"CPUs used", fmt.Sprint(a.Used), fmt.Sprint(b.Used)}, {"kernel", a.Kernel, b.Kernel}, {"Go", a.Go, b.Go},
		{"hypervisor", a.Hypervisor, b.Hypervisor}, {"governor", a.Governor, b.Governor},
	} {
		if d.old != d.new {
			list = append(list, fmt.Sprintf("the %s differs: %s, %s", d.what, d.old, d.new))
		}
	}
	if math.Max(a.Load, b.Load) > 2*math.Min(a.Load, b.Load)+1 {
		list = append(list, fmt.Sprintf("the load differs: %.2f, %.2f", a.Load, b.Load))
	}
	return list
}

// WriteComparison renders what changed, and a line that counts all; unchanged lists the others too.
func WriteComparison(w io.Writer, all []comparison, missing int, unchanged bool) error {
	rows := [][]string{{"cell", "old", "new", "delta", ""}}
	better, worse := 0, 0
	for _, c := range all {
		switch {
		case c.Better:
			better++
		case c.Changed:
			worse++
		case !unchanged:
			continue
		}
		rows = append(rows, []string{c.Key, withRange(c.Unit, c.Old), withRange(c.Unit, c.New), c.Delta, "(" + c.Test + ")"})
	}
	if len(rows) > 1 {
		for _, line := range columns(rows) {
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "%d cells compared: %d better, %d worse, %d without a difference that is more than chance (p < %v); %d not measured in both\n",
		len(all), better, worse, len(all)-better-worse, alpha, missing)
	return err
}

func withRange(unit string, s benchmath.Summary) string {
	return formatMetric(unit, s.Center) + " " + s.PctRangeString()
}

// columns lays rows out; the first column is aligned to the left.
func columns(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if i == 0 || i == len(row)-1 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString(pad + cell)
			}
			b.WriteString("  ")
		}
		lines[n] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

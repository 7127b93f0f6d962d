//go:build linux

package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchmath"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// alpha is the false discovery rate of a comparison: among the changes that the comparison reports, at most this share
// is expected to be false.
const alpha = 0.05

// These are the verdicts of a comparison about a cell, that is, about one measurement.
const (
	cellSame      = "same"      // the whole interval of the ratio lies between 1/(1+least) and 1+least
	cellBetter    = "better"    // the whole interval lies outside this range, on the better side
	cellWorse     = "worse"     // the whole interval lies outside this range, on the worse side
	cellUndecided = "undecided" // none of the other verdicts is certain
	cellTooFew    = "too few"   // with so few repetitions, no difference can be significant
)

// comparison compares two results of one cell, each from one of two files.
type comparison struct {
	Key, Unit string
	Old, New  benchmath.Summary
	Shift     stats.Shift
	Q         float64 // the p value of the change, corrected for the number of cells
	Verdict   string
	Needs     int // estimated number of repetitions that make the verdict certain; 0 if not known
	n1, n2    int
	least     float64
}

// Comparison is the result of comparing two result files.
type Comparison struct {
	Cells   []comparison
	Missing int // cells that only one of the files has measured
	least   float64
	units   string // what the samples are: repetitions, or files
}

// CompareDocuments compares the measurements that two documents share. A change counts only if it is larger than the
// parameter least. For example, 0.05 stands for a change by 5 percent.
func CompareDocuments(before, after *Document, metric string, least float64) *Comparison {
	all := &Comparison{least: least, units: "repetitions"}
	for i := range before.Cells {
		a := &before.Cells[i]
		at := slices.IndexFunc(after.Cells, func(b Cell) bool { return b.Key == a.Key })
		if at < 0 {
			all.Missing++
			continue
		}
		unit := metric
		if unit == "" {
			unit = a.Unit
		}
		x, y := a.Values(unit), after.Cells[at].Values(unit)
		if len(x) == 0 || len(y) == 0 {
			all.Missing++
			continue
		}
		all.Cells = append(all.Cells, compareSamples(a.Key, unit, x, y, least))
	}
	for i := range after.Cells {
		key := after.Cells[i].Key
		if !slices.ContainsFunc(before.Cells, func(a Cell) bool { return a.Key == key }) {
			all.Missing++
		}
	}
	all.judge()
	return all
}

func compareSamples(key, unit string, before, after []float64, least float64) comparison {
	math := benchmath.AssumeNothing
	x := benchmath.NewSample(slices.Clone(before), &benchmath.DefaultThresholds)
	y := benchmath.NewSample(slices.Clone(after), &benchmath.DefaultThresholds)
	return comparison{Key: key, Unit: unit, Old: math.Summary(x, stats.Confidence), New: math.Summary(y, stats.Confidence),
		Shift: stats.Compare(before, after), n1: len(before), n2: len(after), least: least}
}

// judge gives each measurement its verdict. Among many tests, some have a small p value by chance, so judge first
// corrects the p values for the number of tests.
func (all *Comparison) judge() {
	ps := make([]float64, len(all.Cells))
	for i, c := range all.Cells {
		ps[i] = c.Shift.P
	}
	for i, q := range stats.FalseDiscovery(ps) {
		c := &all.Cells[i]
		c.Q = q
		c.Verdict = c.verdict()
		if c.Verdict == cellUndecided {
			c.Needs = c.needs()
		}
	}
}

func (c *comparison) verdict() string {
	r, most := c.Shift.Ratio, 1+c.least
	switch {
	case c.Old.Center == c.New.Center && c.Shift.P == 1:
		return cellSame
	case c.Shift.LeastP >= alpha:
		return cellTooFew
	case c.Q < alpha && (r == stats.Interval{} || r.Lo > most || r.Hi < 1/most):
		if (c.New.Center > c.Old.Center) == bench.BetterHigher[c.Unit] {
			return cellBetter
		}
		return cellWorse
	case c.Shift.Sure() && r.Lo >= 1/most && r.Hi <= most:
		return cellSame
	}
	return cellUndecided
}

// apart reports whether the figures of a measurement differ by more than a factor of 1.5, and the interval of their
// ratio does not contain 1. The difference may still be unproven.
func (c *comparison) apart() bool {
	const far = 1.5
	r := c.Shift.Ratio
	return r.Lo > 1 && r.Center > far || r.Hi < 1 && r.Hi > 0 && r.Center < 1/far
}

// needs estimates how many repetitions make the verdict certain, or returns 0 if it cannot tell. The verdict is certain
// if the interval of the change does not contain the least effect that counts. More repetitions make the interval
// narrower.
func (c *comparison) needs() int {
	r := c.Shift.Ratio
	if !c.Shift.Sure() || r.Lo <= 0 || r.Hi <= r.Lo {
		return 0
	}
	half := math.Log(r.Hi/r.Lo) / 2
	room := math.Abs(math.Abs(math.Log(r.Center)) - math.Log(1+c.least))
	n := float64(min(c.n1, c.n2)) * math.Pow(half/room, 2)
	const most = 1000
	if room == 0 || n > most {
		return 0
	}
	return max(int(math.Ceil(n)), min(c.n1, c.n2)+1)
}

// delta renders the change between the two files for people to read.
func (c *comparison) delta() string {
	r := c.Shift.Ratio
	switch {
	case c.Verdict == cellSame:
		return "~"
	case r == stats.Interval{}:
		return "?"
	case r.Center >= 2 || r.Center <= 0.5:
		return formatRatio(r.Center) + "×"
	}
	return fmt.Sprintf("%+.1f%%", 100*(r.Center-1))
}

// reason returns the verdict on a measurement, and the figures on which it rests.
func (c *comparison) reason() string {
	interval := ""
	if r := c.Shift.Ratio; r != (stats.Interval{}) {
		interval = fmt.Sprintf(" [%s, %s]", formatRatio(r.Lo), formatRatio(r.Hi))
	}
	text := fmt.Sprintf("%s%s p=%.2g n=%d+%d", c.Verdict, interval, c.Q, c.n1, c.n2)
	if c.Needs > 0 {
		text += fmt.Sprintf(", take %d", c.Needs)
	}
	return text
}

// Differences returns the differences between two hosts, or two states of one host, that can change figures.
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
	for _, d := range []struct{ what, old, new string }{ // older result files lack some of these values
		{"the machine differs", a.Machine, b.Machine}, {"the firmware differs", a.Firmware, b.Firmware},
		{"the microcode differs", a.Microcode, b.Microcode}, {"turbo differs", a.Turbo, b.Turbo}, {"the idle states differ", a.Idle, b.Idle},
	} {
		if d.old != "" && d.new != "" && d.old != d.new {
			list = append(list, fmt.Sprintf("%s: %s, %s", d.what, d.old, d.new))
		}
	}
	if len(a.Rlimits) > 0 && len(b.Rlimits) > 0 && a.Arguments != b.Arguments {
		list = append(list, fmt.Sprintf("the kernel arguments differ: %q, %q", a.Arguments, b.Arguments))
	}
	for _, name := range differing(a.Mitigations, b.Mitigations) {
		list = append(list, fmt.Sprintf("the mitigation of %s differs: %s, %s", name, a.Mitigations[name], b.Mitigations[name]))
	}
	for _, name := range differing(a.Rlimits, b.Rlimits) {
		list = append(list, fmt.Sprintf("%s differs: %s, %s", name, a.Rlimits[name], b.Rlimits[name]))
	}
	if math.Max(a.Load, b.Load) > 2*math.Min(a.Load, b.Load)+1 {
		list = append(list, fmt.Sprintf("the load differs: %.2f, %.2f", a.Load, b.Load))
	}
	return list
}

// differing returns the sorted names for which the maps a and b have different texts. It returns nothing if one of the
// maps is empty, because files from earlier versions of this program have no such map.
func differing(a, b map[string]string) (names []string) {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if a[name] != b[name] {
			names = append(names, name)
		}
	}
	return names
}

// Write renders the measurements that have changed or may have changed, and the number of measurements with each
// verdict. If unchanged is set, it renders the other measurements, too.
func (all *Comparison) Write(w io.Writer, unchanged bool) error {
	rows := [][]string{{"cell", "old", "new", "delta", ""}}
	counts := map[string]int{}
	apart := 0
	for _, c := range all.Cells {
		counts[c.Verdict]++
		decided := c.Verdict == cellBetter || c.Verdict == cellWorse
		if !decided && c.Verdict != cellSame && c.apart() {
			apart++
			decided = true
		}
		if decided || unchanged {
			rows = append(rows, []string{c.Key, withRange(c.Unit, c.Old), withRange(c.Unit, c.New), c.delta(), c.reason()})
		}
	}
	var lines []string
	if len(rows) > 1 {
		lines = append(columns(rows), "")
	}
	lines = append(lines, fmt.Sprintf("%d cells compared: %d better, %d worse, %d the same within %s, %d undecided, %d with too few %s; %d not measured in both",
		len(all.Cells), counts[cellBetter], counts[cellWorse], counts[cellSame], percent(all.least), counts[cellUndecided], counts[cellTooFew], all.units, all.Missing))
	lines = append(lines, all.advice(counts, apart)...)
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// advice returns lines that say which changes the comparison could find, and how many repetitions would show smaller
// ones.
func (all *Comparison) advice(counts map[string]int, apart int) (list []string) {
	if counts[cellTooFew] > 0 {
		i := slices.IndexFunc(all.Cells, func(c comparison) bool { return c.Verdict == cellTooFew })
		c := all.Cells[i]
		list = append(list, fmt.Sprintf("%d and %d %s cannot show any change (least p %.2g): take 10, and at least %d", c.n1, c.n2, all.units, c.Shift.LeastP, stats.EnoughFor(alpha)))
	}
	if apart > 0 {
		list = append(list, fmt.Sprintf("%d cells that are listed differ by more than half in all %s, and there are too few to be sure: a change of one of %d cells needs %d on each side", apart, all.units, len(all.Cells), stats.EnoughFor(alpha/float64(len(all.Cells)))))
	}
	var visible []float64
	for _, c := range all.Cells {
		if r := c.Shift.Ratio; c.Shift.Sure() && r.Lo > 0 {
			visible = append(visible, (1+all.least)*math.Sqrt(r.Hi/r.Lo)-1)
		}
	}
	if len(visible) > 0 {
		list = append(list, fmt.Sprintf("in half of the cells, a change of %s or more would have been found", percent(stats.Median(visible))))
	}
	return append(list, fmt.Sprintf("a change is called if its 95 %% interval lies beyond %s and its p, corrected for %d cells (Benjamini and Hochberg), is below %v",
		percent(all.least), len(all.Cells), alpha))
}

func percent(share float64) string {
	return strconv.FormatFloat(math.Round(1000*share)/10, 'f', -1, 64) + " %"
}

func withRange(unit string, s benchmath.Summary) string {
	return formatMetric(unit, s.Center) + " " + s.PctRangeString()
}

// columns formats rows as a table with aligned columns. The first column is aligned to the left,
// all others to the right.
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

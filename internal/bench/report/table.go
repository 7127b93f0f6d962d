//go:build linux

package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// TableWidth is the largest width of a table, in columns of characters.
const TableWidth = 100

// WriteTable renders the results for a terminal: for a suite its decisions, and otherwise a table for each group of
// comparable measurements.
func WriteTable(w io.Writer, r *Run) error {
	if r.Options.Suite && !r.Details && len(r.Bars) == 0 {
		d, err := NewDocument(r)
		if err != nil {
			return err
		}
		return WriteDecisions(w, d, r.Options.Dropped, r.more())
	}
	b := bufio.NewWriter(w)
	e := r.Env
	fmt.Fprintf(b, "%s, %d CPUs (used: %s), %s, %s, load %.2f\n", e.CPU, e.CPUs, place.JoinInts(e.Used), e.Kernel, e.Go, e.Load)
	for _, warning := range r.Warnings {
		fmt.Fprintln(b, "warning:", warning)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(b, cut("note: "+note))
	}
	d, err := NewDocument(r)
	if err != nil {
		return err
	}
	if len(r.Bars) > 0 {
		writeBars(b, r.Bars)
	} else {
		writeGlance(b, groups(r.Results))
		for _, group := range groups(r.Results) {
			if c := group[0].Cell; c.Mem == nil && (c.Scenario.Name != "matrix" || !place.IsPair(c.Place)) {
				writeGroup(b, group)
			}
		}
		writeRecovery(b, d)
		writeMem(b, r)
		writeMatrix(b, d)
		WriteAdvice(b, d.Advice)
	}
	writeFacts(b, d)
	fmt.Fprintf(b, "\nseed %d, %d repetitions of %v each, interleaved; median [min..max] of the repetitions\n",
		r.Options.Seed, r.Options.Count, r.Options.Time)
	return b.Flush()
}

// groups divides results into groups that can be compared, in the order of the scenarios.
func groups(results []*bench.Result) [][]*bench.Result {
	var keys []string
	byKey := map[string][]*bench.Result{}
	for _, r := range results {
		k := r.Cell.Group()
		if byKey[k] == nil {
			keys = append(keys, k)
		}
		byKey[k] = append(byKey[k], r)
	}
	slices.SortStableFunc(keys, func(a, b string) int {
		return int(byKey[a][0].Cell.Scenario.ID) - int(byKey[b][0].Cell.Scenario.ID)
	})
	all := make([][]*bench.Result, len(keys))
	for i, k := range keys {
		all[i] = byKey[k]
	}
	return all
}

// reference returns the result by which the results of a group are divided. It belongs to the first measured subject in
// the list Ref of the scenario. If no subject of this list was measured, reference returns nil.
func reference(group []*bench.Result) *bench.Result {
	for _, name := range group[0].Cell.Scenario.Ref {
		for _, r := range group {
			if r.Cell.Subject.Name() == name && len(r.Values(r.Cell.Scenario.Unit)) > 0 {
				return r
			}
		}
	}
	return nil
}

func writeGroup(w io.Writer, group []*bench.Result) {
	sc := group[0].Cell.Scenario
	ref := reference(group)
	fmt.Fprintln(w, "\n"+strings.TrimSpace(sc.Name+"  "+strings.ReplaceAll(bench.JoinParams(group[0].Cell.Params()), "/", "  ")))
	against := ""
	if ref != nil {
		against = "vs " + ref.Cell.Subject.Name()
	}
	rows := [][]string{append(append([]string{"", sc.Unit, "[min..max]"}, sc.Others...), against)}
	best := bestOf(group)
	for _, r := range group {
		rows = append(rows, rowOf(r, ref, r == best))
	}
	writeRows(w, narrow(rows))
}

// narrow makes a table narrower if it is too wide. It removes the column of ranges, and then, if necessary, the
// intervals of the ratios.
func narrow(rows [][]string) [][]string {
	const ranges = 2
	if wide(rows) {
		for i, row := range rows {
			if len(row) > ranges {
				rows[i] = slices.Delete(row, ranges, ranges+1)
			}
		}
	}
	if wide(rows) {
		for _, row := range rows[1:] {
			if len(row) > 2 {
				row[len(row)-1], _, _ = strings.Cut(row[len(row)-1], " [")
			}
		}
	}
	return rows
}

func wide(rows [][]string) bool {
	var widths []int
	for _, row := range rows {
		for i, s := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if len(row) > 2 {
				widths[i] = max(widths[i], utf8.RuneCountInString(s)+2)
			}
		}
	}
	total := -2
	for _, n := range widths {
		total += n
	}
	return total > TableWidth
}

// rowOf returns the row of a table that shows the result r. The last column has the ratio of r to the result ref.
func rowOf(r, ref *bench.Result, best bool) []string {
	sc := r.Cell.Scenario
	name := "  " + r.Cell.Subject.Name()
	if best {
		name = "* " + r.Cell.Subject.Name()
	}
	status, reason := r.Status()
	vs := r.Values(sc.Unit)
	if len(vs) == 0 {
		if status == bench.StatusOK {
			return []string{name, "too few samples"}
		}
		return []string{name, status + ": " + reason}
	}
	s := stats.Summarize(vs)
	row := []string{name, formatMetric(sc.Unit, s.Center),
		fmt.Sprintf("[%s..%s]", formatMetric(sc.Unit, s.Lo), formatMetric(sc.Unit, s.Hi))}
	for _, m := range sc.Others {
		if vs := r.Values(m); len(vs) > 0 {
			row = append(row, formatMetric(m, stats.Median(vs)))
		} else {
			row = append(row, "-")
		}
	}
	if status != bench.StatusOK {
		return append(row, status)
	}
	if ref == nil {
		return append(row, "")
	}
	if r == ref {
		return append(row, "1")
	}
	q, err := stats.RatioInterval(bench.Ratios(r, ref, sc.Unit))
	if err != nil {
		return append(row, "-")
	}
	return append(row, formatInterval(q))
}

// bestOf returns the result with the best median.
func bestOf(group []*bench.Result) (best *bench.Result) {
	var top float64
	for _, r := range group {
		vs := r.Values(r.Cell.Scenario.Unit)
		if status, _ := r.Status(); status != bench.StatusOK || len(vs) == 0 {
			continue
		}
		if v := stats.Median(vs); best == nil || (v > top) == r.Cell.Scenario.Higher && v != top {
			best, top = r, v
		}
	}
	return best
}

// writeRows writes a table. The first column is aligned to the left, the others to the right. A row that consists of
// two texts is a note, which spans the table.
func writeRows(w io.Writer, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, s := range row {
			if len(row) == 2 && i == 1 {
				break
			}
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(s))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, s := range row {
			pad := strings.Repeat(" ", max(0, widths[min(i, len(widths)-1)]-utf8.RuneCountInString(s)))
			switch {
			case i == 0:
				b.WriteString(s + pad)
			case len(row) == 2:
				b.WriteString("  " + s)
			default:
				b.WriteString("  " + pad + s)
			}
		}
		fmt.Fprintln(w, cut(b.String()))
	}
}

// cut shortens a line to the width of a table.
func cut(text string) string {
	line := []rune(strings.TrimRight(text, " "))
	if len(line) > TableWidth {
		line = append(line[:TableWidth-1], '…')
	}
	return string(line)
}

// formatMetric renders the value of a metric in a unit that fits the size of the value.
func formatMetric(metric string, v float64) string {
	switch {
	case strings.HasSuffix(metric, "-ns"):
		for _, u := range []struct {
			ns   float64
			name string
		}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
			if v >= u.ns {
				return significant(v/u.ns) + u.name
			}
		}
		return significant(v) + "ns"
	case strings.HasSuffix(metric, "-%"):
		return significant(v) + " %"
	case metric == "threads" || metric == "disturbed" || metric == "scan-MB/s" || metric == "MB/s":
		return significant(v)
	case metric == "ops/s" || metric == "n" || strings.HasPrefix(metric, "B/"):
		for _, u := range []struct {
			by   float64
			name string
		}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
			if v >= u.by {
				return significant(v/u.by) + u.name
			}
		}
		return significant(v)
	}
	return fmt.Sprintf("%.2f", v)
}

// significant renders a number with three significant digits.
func significant(v float64) string {
	switch {
	case v == math.Trunc(v) && math.Abs(v) < 1000:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// formatInterval renders a ratio with its interval.
func formatInterval(q stats.Interval) string {
	return fmt.Sprintf("%s [%s..%s]", formatRatio(q.Center), formatRatio(q.Lo), formatRatio(q.Hi))
}

func formatRatio(v float64) string {
	if v < 0.095 {
		return fmt.Sprintf("%.4f", v)
	}
	return significant(v)
}

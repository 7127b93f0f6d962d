//go:build linux

package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/shmsync/shmsync/internal/bench/bars"
)

// writeBars renders the bars, that is, the promises about speed, as a table with a row for each bar. Below the table,
// it writes the notes of the bars and the number of bars with each verdict.
func writeBars(w io.Writer, results []bars.Result) {
	fmt.Fprintln(w)
	rows := [][]string{{"bar", "", "figure", "[interval]", "n", "limit", "verdict"}}
	var notes []string
	count := map[string]int{}
	for _, b := range results {
		count[b.Verdict]++
		rows = append(rows, barRow(&b))
		if about := strings.Trim(b.Note+"; "+b.Reason, "; "); about != "" {
			notes = append(notes, fmt.Sprintf("%s %s: %s", b.Name, against(&b), about))
		}
	}
	writeRows(w, rows)
	fmt.Fprintln(w)
	for _, line := range notes {
		writeRows(w, [][]string{{line}})
	}
	var summary []string
	for _, v := range []string{bars.VerdictPass, bars.VerdictFail, bars.VerdictOpen, bars.VerdictPending, bars.VerdictShown} {
		if n := count[v]; n > 0 {
			summary = append(summary, fmt.Sprintf("%d %s", n, v))
		}
	}
	fmt.Fprintln(w, strings.Join(summary, ", "))
}

// against returns the column of a bar that names the peer with which the bar compares its subject. For a bar without a
// peer, the column has the name of the subject without its prefix.
func against(b *bars.Result) string {
	if b.Peer == "" {
		_, prim, _ := strings.Cut(b.Subject, ":")
		return prim
	}
	if b.Other != "" {
		return "÷ " + b.Other
	}
	return "÷ " + strings.TrimPrefix(b.Peer, "in-process:")
}

// barRow returns the row of a table that shows a bar, that is, a promise about speed.
func barRow(b *bars.Result) []string {
	format := formatRatio
	if b.Peer == "" {
		format = func(v float64) string { return formatMetric(b.Metric, v) }
	}
	limit := "-"
	if b.Verdict != bars.VerdictShown {
		limit = "≤ " + format(b.Limit)
		if b.AtLeast {
			limit = "≥ " + format(b.Limit)
		}
	}
	row := []string{b.Name, against(b), "-", "-", "-", limit, b.Verdict}
	if b.Value != nil {
		row[2] = format(b.Value.Center)
		row[3] = fmt.Sprintf("[%s..%s]", format(b.Value.Lo), format(b.Value.Hi))
		row[4] = fmt.Sprint(b.Value.N)
	}
	return row
}

//go:build linux

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// writeGlance renders a line for each result of the library. The line has the ratios of this result to the results of
// the most important primitives of the host. If there are few lines, writeGlance writes nothing.
func writeGlance(w io.Writer, all [][]*bench.Result) {
	const few = 3
	rows := []glanceRow{{"shmsync at a glance", "", "", []string{"times that of"}}}
	for _, group := range all {
		label := glanceName(group[0].Cell.Scenario.Name, group[0].Cell.Params())
		for _, r := range group {
			if r.Cell.Subject.By != bench.Library || len(r.Values(r.Cell.Scenario.Unit)) == 0 {
				continue
			}
			if against := versus(r, group); len(against) > 0 {
				rows = append(rows, glanceRow{label, r.Cell.Subject.Prim,
					formatMetric(r.Cell.Scenario.Unit, stats.Median(r.Values(r.Cell.Scenario.Unit))), against})
			}
		}
	}
	if len(rows) <= few {
		return
	}
	fmt.Fprintln(w)
	for _, line := range glanceLines(rows) {
		fmt.Fprintln(w, line)
	}
}

// glanceLines aligns rows in columns. Ratios that do not fit continue on the next line.
func glanceLines(rows []glanceRow) (lines []string) {
	var what, prim, value int
	for _, r := range rows {
		what, prim, value = max(what, utf8.RuneCountInString(r.What)), max(prim, utf8.RuneCountInString(r.Prim)), max(value, utf8.RuneCountInString(r.Value))
	}
	room := TableWidth - (what + 2 + prim + 2 + value + 2)
	for _, r := range rows {
		line := fmt.Sprintf("%-*s  %-*s  %*s  ", what, r.What, prim, r.Prim, value, r.Value)
		text := ""
		for _, v := range r.Versus {
			if text != "" && utf8.RuneCountInString(text+"   "+v) > room {
				lines = append(lines, cut(line+text))
				line, text = strings.Repeat(" ", TableWidth-room), ""
			}
			if text != "" {
				text += "   "
			}
			text += v
		}
		lines = append(lines, cut(line+text))
	}
	return lines
}

// sharedRivals maps the name of a subject that is a plain lock to a similar reader/writer lock. The function rivals
// uses it for the reader/writer locks of the library.
var sharedRivals = map[string]string{"in-process:sync.Mutex": "in-process:sync.RWMutex", "c:robust": "c:rwlock", "c:pthread": "c:rwlock"}

// rivals returns the subjects with which a primitive of the library is compared. The function present reports whether a
// subject was measured.
func rivals(sc *bench.Scenario, prim string, present func(name string) bool) (list []string) {
	for _, name := range sc.Versus {
		other := sharedRivals[name]
		if strings.HasSuffix(prim, "-read") {
			other += "-read"
		}
		if strings.HasPrefix(prim, "rw") && present(other) {
			name = other
		}
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// versus returns the ratios of a result of the library to the results of the subjects with which it is compared.
func versus(r *bench.Result, group []*bench.Result) (list []string) {
	of := func(name string) *bench.Result {
		if i := slices.IndexFunc(group, func(p *bench.Result) bool { return p.Cell.Subject.Name() == name }); i >= 0 {
			return group[i]
		}
		return nil
	}
	for _, name := range rivals(r.Cell.Scenario, r.Cell.Subject.Prim, func(name string) bool { return of(name) != nil }) {
		if peer := of(name); peer != nil {
			if q, err := stats.RatioInterval(bench.Ratios(r, peer, r.Cell.Scenario.Unit)); err == nil {
				list = append(list, fmt.Sprintf("%s %s", formatRatio(q.Center), strings.TrimPrefix(name, "in-process:")))
			}
		}
	}
	return list
}

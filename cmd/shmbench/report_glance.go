//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// writeGlance renders a line for each figure of the library, with its ratios to
// the peers that matter most. A report that has few of both does without.
func writeGlance(w io.Writer, all [][]*result) {
	const few = 3
	rows := [][]string{{"shmsync at a glance", "", "", "times that of"}}
	for _, group := range all {
		label := glanceLabel(group[0].Cell)
		for _, r := range group {
			if r.Cell.Subject.By != libBy || len(r.values(r.Cell.Scenario.unit)) == 0 {
				continue
			}
			if against := versus(r, group); against != "" {
				rows = append(rows, []string{label, r.Cell.Subject.Prim,
					formatMetric(r.Cell.Scenario.unit, median(r.values(r.Cell.Scenario.unit))), against})
			}
		}
	}
	if len(rows) <= few {
		return
	}
	fmt.Fprintln(w)
	last := len(rows[0]) - 1
	for _, line := range alignLeft(rows, last) {
		fmt.Fprintln(w, line)
	}
}

// sharedRivals are held against locks that can be shared, in the place of others.
var sharedRivals = map[string]string{"in-process:sync.Mutex": "in-process:sync.RWMutex", "c:robust": "c:rwlock", "c:pthread": "c:rwlock"}

// versus lists the ratios of a result to the peers of its scenario.
func versus(r *result, group []*result) string {
	var list []string
	for _, name := range r.Cell.Scenario.versus {
		other := sharedRivals[name]
		if strings.HasSuffix(r.Cell.Subject.Prim, "-read") {
			other += "-read"
		}
		if strings.HasPrefix(r.Cell.Subject.Prim, "rw") &&
			slices.ContainsFunc(group, func(p *result) bool { return p.Cell.Subject.Name() == other }) {
			name = other
		}
		for _, peer := range group {
			if peer.Cell.Subject.Name() != name {
				continue
			}
			if q, err := ratioInterval(ratios(r, peer, r.Cell.Scenario.unit)); err == nil {
				list = append(list, fmt.Sprintf("%s %s", formatRatio(q.Center), strings.TrimPrefix(name, "in-process:")))
			}
		}
	}
	return strings.Join(list, "   ")
}

// glanceLabel names a group shortly.
func glanceLabel(c *cell) string {
	p := c.params()
	switch c.Scenario.name {
	case "lock":
		return fmt.Sprintf("lock %s×%s, %s in, %s out", p["procs"], p["threads"], p["cs"], p["think"])
	case "waiters":
		return p["waiters"] + " waiters"
	case "readers":
		return p["procs"] + " processes that read"
	case "rw":
		return fmt.Sprintf("rw %s×%s, %s%% reads", p["procs"], p["threads"], p["read"])
	case "sem":
		return fmt.Sprintf("sem %s×%s, %s permits", p["procs"], p["threads"], p["permits"])
	case "seq":
		return fmt.Sprintf("step that wakes %s of %s", p["wake"], p["waiters"])
	case "multi":
		return fmt.Sprintf("multi %s×%s, %s keys, %s a hold, %s", p["procs"], p["threads"], p["keys"], p["locks"], p["skew"])
	case "cond":
		return fmt.Sprintf("cond %s×%s, room for %s", p["procs"], p["threads"], p["capacity"])
	case "event", "barrier":
		return fmt.Sprintf("%s %s×%s", c.Scenario.name, p["procs"], p["threads"])
	case "queue":
		return fmt.Sprintf("queue %s×%s of %s, %s at a time", p["procs"], p["threads"], p["capacity"], p["batch"])
	case "herd":
		return fmt.Sprintf("wake %s of %s after %s", p["wake"], p["waiters"], p["gap"])
	case "open":
		return fmt.Sprintf("lock %s×%s at %s/s, %s in", p["procs"], p["threads"], p["rate"], p["cs"])
	case "oversub":
		return fmt.Sprintf("lock, %s for each CPU, spin %s, noise %s", p["load"], p["spin"], p["noise"])
	case "handoff", "wake", "crash":
		label := c.Scenario.name + " " + p["place"]
		if c.Scenario.name == "wake" && c.Gap != usualGap {
			label += " after " + p["gap"]
		}
		if c.Hog > 0 {
			label += " beside a hog"
		}
		return label
	}
	return c.Scenario.name
}

// alignLeft lays rows out in columns; the one before last is aligned to the right,
// and the last is as wide as it needs to be.
func alignLeft(rows [][]string, last int) []string {
	widths := make([]int, last)
	for _, row := range rows {
		for i := range last {
			widths[i] = max(widths[i], len([]rune(row[i])))
		}
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		var b strings.Builder
		for i := range last {
			pad := strings.Repeat(" ", widths[i]-len([]rune(row[i])))
			if i == last-1 {
				b.WriteString(pad + row[i] + "  ")
			} else {
				b.WriteString(row[i] + pad + "  ")
			}
		}
		lines[n] = cut(b.String() + row[last])
	}
	return lines
}

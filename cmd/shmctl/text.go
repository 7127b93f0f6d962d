//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes rows in columns.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, heads ...string) *table {
	t := &table{tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
	t.row(heads...)
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() error { return t.w.Flush() }

// short is a duration as a person says it.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func ago(d time.Duration) string { return short(d) + " ago" }

func since(now time.Time, t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return ago(now.Sub(*t))
}

// age renders an age that may not be known.
func age(ns *int64) string {
	if ns == nil {
		return "unknown"
	}
	return short(time.Duration(*ns))
}

func size(n uint64) string {
	for _, unit := range []struct {
		bytes uint64
		name  string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.bytes {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(unit.bytes)), ".0") + " " + unit.name
		}
	}
	return fmt.Sprintf("%d B", n)
}

// name is a participant in a table: label, pid and name.
func (s *snapshot) short(name string) string {
	if i, ok := s.who[name]; ok {
		p := &s.participants[i]
		text := fmt.Sprintf("%s[%d]", p.Label, p.PID)
		if p.Life != "alive" {
			text += " " + p.Life
		}
		return text
	}
	for _, g := range s.gone {
		if g.Name == name {
			return fmt.Sprintf("%s[%d] gone", g.Label, g.PID)
		}
	}
	return name + " gone"
}

func (s *snapshot) shorts(names []string) string {
	var list []string
	for _, n := range names {
		list = append(list, s.short(n))
	}
	return strings.Join(list, ", ")
}

func what(mode string, key *uint64, count uint64) string {
	text := mode
	if key != nil {
		text += fmt.Sprintf(" %d", *key)
	}
	if count > 1 {
		text += fmt.Sprintf(" ×%d", count)
	}
	return text
}

func wants(w *wait) string {
	text := w.For
	if text == "" {
		text = "something"
	}
	if w.Want != nil {
		text += fmt.Sprintf(" %d", *w.Want)
	}
	return text
}

func writeFindings(out io.Writer, f []finding) {
	for _, f := range f {
		mark := "note"
		if f.Trouble {
			mark = strings.ToUpper(f.Kind)
		}
		fmt.Fprintf(out, "%s: %s\n", mark, f.Text)
		if f.Advice != "" {
			fmt.Fprintf(out, "  → %s\n", f.Advice)
		}
	}
}

func trouble(f []finding) bool {
	for _, f := range f {
		if f.Trouble {
			return true
		}
	}
	return false
}

func health(f []finding) string {
	kinds := map[string]int{}
	var order []string
	for _, f := range f {
		if !f.Trouble {
			continue
		}
		if kinds[f.Kind] == 0 {
			order = append(order, f.Kind)
		}
		kinds[f.Kind]++
	}
	if len(order) == 0 {
		return "ok"
	}
	for i, k := range order {
		if kinds[k] > 1 {
			order[i] = fmt.Sprintf("%s ×%d", k, kinds[k])
		}
	}
	return strings.Join(order, ", ")
}

//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shmsync/shmsync/internal/diagnose"
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

func since(now time.Time, t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return diagnose.Ago(now.Sub(*t))
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
		if f.Command != "" {
			fmt.Fprintf(out, "    $ %s\n", f.Command)
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

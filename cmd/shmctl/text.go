//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

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
		if cells[i] = diagnose.Clean(c); c == "" {
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

// wrap breaks a line between words into lines of at most width columns. Each line after the first begins with indent.
func wrap(line string, width int, indent string) (lines []string) {
	runes := []rune(line)
	for width > 2*len(indent) && len(runes) > width {
		end := width
		for end > 0 && runes[end] != ' ' {
			end--
		}
		if strings.TrimSpace(string(runes[:end])) == "" {
			end = width // the word is longer than a line, so break it
		}
		lines = append(lines, strings.TrimRight(string(runes[:end]), " "))
		runes = []rune(indent + strings.TrimLeft(string(runes[end:]), " "))
	}
	return append(lines, string(runes))
}

// writeLines writes a sentence in lines of a terminal's width, or in one line if width is 0.
func writeLines(out io.Writer, width int, indent, text string) {
	fmt.Fprintln(out, strings.Join(wrap(text, width, indent), "\n"))
}

// width returns the number of columns of the terminal that commands write to, or 0 if the output is not a terminal.
func (s *session) width() int {
	if s.terminal == nil {
		return 0
	}
	width, _, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil {
		return 0
	}
	return width
}

func (s *session) writeFindings(f []finding) { writeFindings(s.stdout, s.width(), f) }

// mostFindings is how many findings of a kind are written as text. There may be very many, because a process may die
// with very many locks.
const mostFindings = 20

// writeFindings writes findings in lines of at most width columns. A command stays on one line, so that the user can
// paste it. If a finding has a second command, for the case that the first one fails, that command has a line of its
// own.
func writeFindings(out io.Writer, width int, f []finding) {
	written := map[string]int{}
	var order []string
	for _, f := range f {
		mark := "note"
		if f.Trouble {
			mark = strings.ToUpper(f.Kind)
		}
		if written[mark] == 0 {
			order = append(order, mark)
		}
		if written[mark]++; written[mark] > mostFindings {
			continue
		}
		writeLines(out, width, "  ", fmt.Sprintf("%s: %s", mark, f.Text))
		if f.Advice != "" {
			writeLines(out, width, "    ", "  → "+f.Advice)
		}
		if f.Command != "" {
			fmt.Fprintf(out, "    $ %s\n", f.Command)
		}
		if f.Force != "" {
			fmt.Fprintf(out, "  → if it does not end\n    $ %s\n", f.Force)
		}
	}
	for _, mark := range order {
		if n := written[mark] - mostFindings; n > 0 {
			text := fmt.Sprintf("%s: %d more like these; --json lists all", mark, n)
			if mark == strings.ToUpper(diagnose.OwnerDead) {
				text += ", and recover --all makes all locks usable"
			}
			writeLines(out, width, "  ", text)
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

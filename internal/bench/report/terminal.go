//go:build linux

package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/shmsync/shmsync/internal/bench"
)

// These constants limit how much room the decisions of a suite take on a terminal.
const (
	TerminalWidth = 80
	TerminalLines = 60
	answerIndent  = 13 // columns before the text of a decision
	mostNotes     = 6  // lines of warnings
	mostReasons   = 6  // lines of reasons for what was left out
)

// WriteDecisions renders the answers of a run on one screen. The parameter more is the last line: it says how to see
// what the screen omits.
func WriteDecisions(w io.Writer, d *Document, dropped []string, more string) error {
	head := []string{d.headline()}
	for _, a := range d.Advice {
		if a.Verdict == adviceWithheld {
			head = append(head, wrap("! ", "  ", a.Text+": "+strings.Join(a.Evidence, "; "), TerminalWidth, 3)...)
		}
	}
	for i, warning := range d.Warnings {
		lines := wrap("! ", "  ", warning, TerminalWidth, 2)
		if left := len(d.Warnings) - i - 1; len(head)+len(lines) > mostNotes-min(left, 1) {
			more := "warnings"
			if left == 0 {
				more = "warning"
			}
			head = append(head, fmt.Sprintf("! %d more %s: shmbench --details", left+1, more))
			break
		}
		head = append(head, lines...)
	}
	tail := d.leftOut(dropped)
	tail = append(tail, wrap("", "", more, TerminalWidth, 2)...)
	all := Decisions(d, d.Advice)
	room := TerminalLines - len(head) - len(tail) - 2
	var body []string
	for detail := mostDetail; detail >= 0; detail-- {
		if body = answers(all, detail); len(body) <= room {
			break
		}
	}
	b := bufio.NewWriter(w)
	for _, part := range [][]string{head, {""}, body, {""}, tail} {
		for _, line := range part {
			fmt.Fprintln(b, line)
		}
	}
	return b.Flush()
}

// headline returns a line that says what was measured, and how much the run was disturbed.
func (d *Document) headline() string {
	e := d.Env
	rounds := 0
	for i := range d.Cells {
		rounds = max(rounds, len(d.Cells[i].Reps))
	}
	rest := fmt.Sprintf(", %d CPUs", e.CPUs)
	if e.Nodes > 1 {
		rest += fmt.Sprintf(", %d nodes", e.Nodes)
	}
	rest += fmt.Sprintf(" | %d rounds | others took %.1f %%", rounds, 100*e.Others)
	if d.State != "" {
		rest += " | " + d.State
	}
	return clip(e.CPU, TerminalWidth-utf8.RuneCountInString(rest)) + rest
}

// mostDetail is the highest level of detail of an answer.
const mostDetail = 4

// answers renders decisions at one of five levels of detail. Level 4 shows the effect, the comparison with other
// primitives, and the whole text of each decision. Level 3 shows shorter texts. Level 2 shows the comparison only for
// decisions that ask for an action. Level 1 shows no effects. Level 0 shows one line for each decision.
func answers(all []decision, detail int) (lines []string) {
	indent := strings.Repeat(" ", answerIndent)
	var unknown, commands, withheld []string
	for _, one := range all {
		switch one.Verdict {
		case adviceUnknown:
			unknown = append(unknown, fmt.Sprint(one.Number))
			commands = append(commands, one.Again)
			continue
		case adviceWithheld:
			withheld = append(withheld, fmt.Sprint(one.Number))
			continue
		}
		head := fmt.Sprintf("%2d %-*s", one.Number, answerIndent-3, shortVerdicts[one.Verdict])
		most := 3
		switch detail {
		case 0:
			most = 1
		case mostDetail:
			most = 6
		}
		text := one.Text
		if one.Verdict != adviceDo {
			text = strings.TrimSuffix(one.Question, "?") + ": " + text
			most = min(most, max(2, most/2))
		}
		lines = append(lines, wrap(head, indent, text, TerminalWidth, most)...)
		if one.Verdict == adviceDo && detail > 0 {
			for i, do := range one.Do {
				if i < detail {
					lines = append(lines, wrap(indent+"> ", indent+"  ", do, TerminalWidth, 2)...)
				}
			}
		}
		if detail > 2 || detail > 1 && one.Verdict == adviceDo {
			if one.Because != "" {
				lines = append(lines, clip(indent+"effect "+one.Because, TerminalWidth))
			}
			if peers := one.summary(); peers != "" {
				lines = append(lines, wrap(indent, indent, peers, TerminalWidth, 2)...)
			}
		}
	}
	if len(withheld) > 0 {
		lines = append(lines, wrap("", indent, "no advice on times: decisions "+strings.Join(withheld, ", ")+" are withheld", TerminalWidth, 2)...)
	}
	if len(unknown) > 0 {
		lines = append(lines, wrap("", indent, "not measured by this run: decisions "+strings.Join(unknown, ", ")+": "+strings.Join(commands, "; "), TerminalWidth, min(1+detail, 3))...)
	}
	return lines
}

// shortVerdicts has the verdicts in a form that fits into a narrow column.
var shortVerdicts = map[string]string{
	adviceDo: "do", adviceUndecided: "undecided", adviceAsIs: "as it is", adviceNone: "no diff.", adviceMoot: "n/a", adviceWithheld: "withheld",
}

// leftOut returns a line for each reason why measurements have no figures.
func (d *Document) leftOut(dropped []string) (lines []string) {
	counts := map[string]int{}
	var reasons []string
	for i := range d.Cells {
		c := &d.Cells[i]
		if c.Status == bench.StatusOK {
			continue
		}
		why := c.Status
		if c.Reason != "" {
			first, _, _ := strings.Cut(c.Reason, "\n")
			why += ": " + first
		}
		if counts[why] == 0 {
			reasons = append(reasons, why)
		}
		counts[why]++
	}
	slices.SortStableFunc(reasons, func(a, b string) int { return counts[b] - counts[a] })
	if len(dropped) > 0 {
		lines = append(lines, clip("left out for lack of time: "+strings.Join(dropped, ", "), TerminalWidth))
	}
	for i, why := range reasons {
		if len(lines) == mostReasons {
			return append(lines, fmt.Sprintf("%d more reasons: shmbench --details", len(reasons)-i))
		}
		cells := "cells"
		if counts[why] == 1 {
			cells = "cell"
		}
		lines = append(lines, clip(fmt.Sprintf("%d %s %s", counts[why], cells, why), TerminalWidth))
	}
	return lines
}

// more returns the line that says how the user can see what the decisions of a run omit.
func (r *Run) more() string {
	for i, arg := range r.Command {
		if file, ok := strings.CutPrefix(arg, "--out="); ok {
			return "next: shmbench report " + file + " page.html; shmbench recommend " + file
		}
		if (arg == "--out" || arg == "-o") && i+1 < len(r.Command) {
			return "next: shmbench report " + r.Command[i+1] + " page.html; shmbench recommend " + r.Command[i+1]
		}
	}
	return "next: shmbench --details shows all tables; --out run.json keeps the run, and --html page.html draws it"
}

// clip shortens a line to width characters.
func clip(line string, width int) string {
	width = max(width, 1)
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}

// wrap breaks a text into lines of the given width. The parameter most is the largest number of lines. If the text
// needs more, the last line ends in an ellipsis.
func wrap(head, indent, text string, width, most int) (lines []string) {
	line, empty := head, true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			if len(lines)+1 == most {
				return append(lines, clip(line+" …", width))
			}
			lines, line, empty = append(lines, clip(line, width)), indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	if empty && head == "" {
		return lines
	}
	return append(lines, clip(line, width))
}

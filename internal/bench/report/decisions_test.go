//go:build linux

package report

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
)

// Each rule answers one question, and there are at most twelve questions.
func TestEveryRuleAnswersOneQuestion(t *testing.T) {
	require.LessOrEqual(t, len(questions), 12)
	answered := map[string]int{}
	for _, q := range questions {
		for _, id := range q.rules {
			answered[id]++
		}
		require.True(t, q.rules[0] == "R11" || q.measure() != "", q.text)
	}
	for _, r := range rules {
		require.Equal(t, 1, answered[r.id], r.id)
	}
	require.Equal(t, 1, answered["R11"])
	require.Len(t, answered, len(rules)+1)
}

// manyFacts changes the costs of cells so that most questions get an answer.
func manyFacts(top *topology.Topology, c *bench.Cell, cpus []int) float64 {
	factor := shared(128)(top, c, cpus)
	for _, base := range []topology.Class{topology.SMT, topology.SameNode, topology.Package, topology.Remote} {
		if (c.Scenario.Name == "matrix" || c.Scenario.Name == "wake" || c.Scenario.Name == "lock") && among(top, cpus, base) {
			factor *= 2
		}
	}
	switch {
	case c.Mem != nil && strings.Contains(c.Mem.PolicyName(), "interleave"):
		factor *= 1.6
	case c.Scenario.Name == "rw" && c.Subject.Name() == "shmsync:rwmutex":
		factor /= 2
	case c.Scenario.Name == "multi":
		factor /= float64(c.Keys)
	case c.Scenario.Name == "queue":
		factor /= float64(c.Batch)
	}
	return factor
}

// The answer of a suite fits a screen of 60 lines of 80 columns, for each recorded host and any results.
func TestDecisionsFitOneScreen(t *testing.T) {
	busy := func(d *Document) { d.Env.Others = 0.5 }
	long := func(d *Document) {
		for i := range 12 {
			d.Warnings = append(d.Warnings, strings.Repeat("a long warning ", 12)+strconv.Itoa(i))
			d.Cells[i].Status, d.Cells[i].Reason = bench.StatusSkipped, strings.Repeat("a long reason ", 12)+strconv.Itoa(i)
		}
	}
	for _, name := range recordedHosts(t) {
		o, cells := plannedCells(t, name)
		for what, change := range map[string]func(*Document){"quiet": func(*Document) {}, "busy": busy, "long": long} {
			d := planted(o, cells, 7, manyFacts)
			d.State = StateInterrupted
			d.Env.CPU = "A Processor With a Name That Is Longer Than All Others(R) CPU @ 2.40GHz"
			change(d)
			d.Advice = Recommend(d)
			var out bytes.Buffer
			require.NoError(t, WriteDecisions(&out, d, []string{"event", "barrier"}, "next: shmbench report run.json page.html"))
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			require.LessOrEqual(t, len(lines), TerminalLines, "%s, %s:\n%s", name, what, out.String())
			for _, line := range lines {
				require.LessOrEqual(t, utf8.RuneCountInString(line), TerminalWidth, line)
			}
			require.Contains(t, lines[0], StateInterrupted, "an interrupted run says so first")
			if what == "busy" {
				text := strings.Join(strings.Fields(out.String()), " ")
				require.Contains(t, text, "other programs took 50.0 %")
				require.Contains(t, text, "decisions 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 are withheld")
			} else {
				first := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, " 1 ") })
				require.True(t, first > 0 && first <= mostNotes+1, "%s, %s: decisions come first:\n%s", name, what, out.String())
			}
			require.Contains(t, out.String(), "left out for lack of time: event, barrier")
			list := Decisions(d, d.Advice)
			require.Len(t, list, len(questions))
			for _, one := range list {
				require.NotEmpty(t, one.Text, one.Question)
				require.True(t, what != "busy" || one.Number == len(questions) || one.Verdict == adviceWithheld, one.Question)
				if one.Verdict == adviceDo && one.Question != questions[len(questions)-1].text {
					require.NotEmpty(t, one.Again, one.Question)
				}
			}
		}
	}
}

// A warning on a terminal is not cut off. If there is no room for all warnings, a line says how many are missing.
func TestWarningsAreWhole(t *testing.T) {
	for n, want := range map[int]string{1: "", 2: "", 3: "! 1 more warning:", 9: "! 7 more warnings:"} {
		d := synthetic(t, "two-socket")
		for range n {
			d.Warnings = append(d.Warnings, "this warning is as long as two lines of a terminal, so that some of it would be cut off, and ends here")
		}
		var out bytes.Buffer
		require.NoError(t, WriteDecisions(&out, d, nil, ""))
		require.Equal(t, strings.Count(out.String(), "! this"), strings.Count(out.String(), "ends here"))
		if want == "" {
			require.NotContains(t, out.String(), "more warnings")
		} else {
			require.Contains(t, out.String(), want)
		}
	}
}

// TestDecisionsShowTheBestPeer checks that a decision names two peers: the one that is most like the primitive of the
// library, and the best one, even if the best one beats the library.
func TestDecisionsShowTheBestPeer(t *testing.T) {
	o, cells := plannedCells(t, "two-by-96")
	d := planted(o, cells, 3, func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
		return map[string]float64{"c:futex-spin1000": 0.25, "c:robust": 4}[c.Subject.Name()] + map[bool]float64{true: 1}[c.Subject.Name() != "c:futex-spin1000" && c.Subject.Name() != "c:robust"]
	})
	d.Advice = Recommend(d)
	one := Decisions(d, d.Advice)[0]
	require.Equal(t, "shmsync:mutex", one.Bars[0].Name)
	require.Equal(t, "c:robust", one.Bars[1].Name)
	require.Equal(t, "most alike", one.Bars[1].Role)
	require.Equal(t, "c:futex-spin1000", one.Bars[2].Name)
	require.Equal(t, "best in C", one.Bars[2].Role)
	require.Less(t, one.Bars[2].Ratio, "0.4", "the peer is better")
	require.LessOrEqual(t, len(one.Bars), mostBars)
}

// Each subject has one colour and one kind of line on the whole page.
func TestStylesTellSubjectsApart(t *testing.T) {
	seen := map[style]string{}
	for name, st := range styles() {
		require.Empty(t, seen[st], "%s looks like %s", name, seen[st])
		seen[st] = name
	}
	require.Greater(t, len(seen), 40)
	require.Equal(t, styleOf("c:robust"), styleOf("c:robust (before)"))
	require.Empty(t, styleOf("spin=auto").color)
}

// largePage returns the page of a recorded host with 384 CPUs.
func largePage(t *testing.T, change func(*Document)) string {
	t.Helper()
	o, cells := plannedCells(t, "two-by-96")
	d := planted(o, cells, 7, manyFacts)
	d.Env.Kernel, d.Env.Go, d.Env.Date, d.Command = "6.18", "go1.26", "2026-01-01T00:00:00Z", []string{"shmbench"}
	change(d)
	return pageOf(t, d)
}

// The page begins with the decisions. Everything else is collapsed.
func TestPageBeginsWithDecisions(t *testing.T) {
	page := largePage(t, func(*Document) {})
	decisions, rest, ok := strings.Cut(page, `<h2 class="more">`)
	require.True(t, ok)
	require.Equal(t, len(questions), strings.Count(decisions, "<article"))
	require.NotContains(t, decisions, "<svg")
	open := 0
	for _, tag := range regexp.MustCompile(`</?details|<figure|<table`).FindAllString(rest, -1) {
		switch tag {
		case "<details":
			open++
		case "</details":
			open--
		default:
			require.Positive(t, open, tag)
		}
	}
	require.Zero(t, open)
}

// browser returns the path of a headless Chromium. If there is none, it skips the test.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.Empty(t, os.Getenv("SHMSYNC_NEED_CHROMIUM"))
	t.Skip("needs chromium, to lay out the page")
	return ""
}

// TestPageInABrowser checks the layout of the page while its details are collapsed. On a wide screen, the page is at
// most 6,000 pixels high. It fits a screen that is 400 pixels wide, and has no text smaller than 11 pixels. Without the
// details, it prints on at most four pages.
func TestPageInABrowser(t *testing.T) {
	program, dir := browser(t), t.TempDir()
	run := func(args ...string) string {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, program, append([]string{"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--allow-file-access-from-files",
			"--user-data-dir=" + filepath.Join(dir, "profile")}, args...)...).Output()
		require.NoError(t, err, "chromium %v, within two minutes", args)
		return string(out)
	}
	for name, change := range map[string]func(*Document){"quiet": func(*Document) {}, "busy": func(d *Document) { d.Env.Others = 0.5 }} {
		page := largePage(t, change)
		file := filepath.Join(dir, name+".html")
		require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
		for _, width := range []string{"400", "1200"} {
			frame := filepath.Join(dir, "frame.html")
			require.NoError(t, os.WriteFile(frame, []byte(`<iframe id="f" src="`+name+`.html" style="width:`+width+`px;height:800px;border:0"></iframe><script>onload = () => {
				const d = f.contentDocument; let least = 99;
				for (const e of d.body.querySelectorAll("*")) if (e.getClientRects().length && [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())) least = Math.min(least, parseFloat(f.contentWindow.getComputedStyle(e).fontSize));
				document.title = [d.documentElement.scrollHeight, d.documentElement.scrollWidth, least].join(" "); }</script>`), 0o600))
			dom := run("--window-size=1400,900", "--dump-dom", "file://"+frame)
			got := regexp.MustCompile(`<title>(\d+) (\d+) ([\d.]+)</title>`).FindStringSubmatch(dom)
			require.NotNil(t, got, "the browser measured the page")
			height, _ := strconv.Atoi(got[1])
			wide, _ := strconv.Atoi(got[2])
			least, _ := strconv.ParseFloat(got[3], 64)
			limit, _ := strconv.Atoi(width)
			if width == "1200" {
				require.LessOrEqual(t, height, 6000, name)
			}
			require.LessOrEqual(t, wide, limit, "%s at %s pixels leaves the screen", name, width)
			require.GreaterOrEqual(t, least, 11.0, "%s at %s pixels", name, width)
		}
		before := filepath.Join(dir, "before.html")
		require.NoError(t, os.WriteFile(before, []byte(strings.Replace(page, "</style>", ".more, .more ~ * { display: none; }</style>", 1)), 0o600))
		pdf := filepath.Join(dir, "before.pdf")
		run("--print-to-pdf="+pdf, "file://"+before)
		b, err := os.ReadFile(pdf)
		require.NoError(t, err)
		pages := len(regexp.MustCompile(`/Type\s*/Page\b`).FindAll(b, -1))
		require.True(t, pages >= 1 && pages <= 4, "%s: %d pages before the details", name, pages)
	}
}

//go:build linux

package report

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/madeup"
)

// withShapes adds to a made-up document the results that some figures need: workers, hand-overs, and several gaps and
// loads.
func withShapes(d *Document) {
	var more []Cell
	for _, c := range d.Cells {
		for i := range c.Reps {
			r := &c.Reps[i]
			if r.Status != bench.StatusOK || c.Params["procs"] == "" && c.Scenario != "oversub" {
				continue
			}
			r.Workers = []bench.WorkerReport{{Ops: 300}, {Ops: 100}}
			r.Metrics["jain"] = 0.8
			r.Metrics["from-self"], r.Metrics["from-cache"] = 0.75, 0.25
		}
		for name, values := range map[string][]string{"gap": {"0", "20us", "10ms"}} {
			if c.Scenario != "wake" && c.Scenario != "herd" {
				continue
			}
			for _, v := range values {
				other := c
				other.Params = maps.Clone(c.Params)
				other.Params[name] = v
				other.Key = strings.Replace(c.Key, "gap=1.5ms", "gap="+v, 1)
				more = append(more, other)
			}
		}
	}
	d.Cells = append(d.Cells, more...)
}

func pageOf(t *testing.T, d *Document) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteHTML(&b, d))
	require.NoError(t, madeup.CheckPage(b.String()))
	require.NotRegexp(t, `NaN|Inf`, regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(b.String(), -1))
	return b.String()
}

// The page has every figure for which there are results.
func TestFiguresAreComplete(t *testing.T) {
	file := keepMadeUp(t, withShapes)
	d, err := ReadDocument(file)
	require.NoError(t, err)
	page := pageOf(t, d)
	for _, title := range []string{
		"Side by side", "Latency ", "Fairness ", "Handovers ", "Recovery ", "Throughput cs=", "Throughput against load ",
		"Wake latency against gap place=cross", "Wake latency against gap place=same",
	} {
		require.Contains(t, page, "<figcaption><b>"+title)
	}
	section := func(name string) string {
		_, rest, found := strings.Cut(page, `<h2 id="`+name+`">`)
		require.True(t, found, name)
		text, _, _ := strings.Cut(rest, "<h2 ")
		return text
	}
	for _, sc := range bench.Scenarios {
		text := section(sc.Name)
		if !slices.Contains([]string{"oversub", "idle", "mem", "matrix", "padding", "stream", "fence"}, sc.Name) {
			require.Contains(t, text, "<b>Side by side", "%s: peers side by side", sc.Name)
		}
		if sc.Name != "mem" { // the made-up results have no data for figures of mem
			require.Contains(t, text, "<svg", sc.Name)
		}
	}
	for _, name := range []string{"lock", "rw", "sem", "oversub", "open"} {
		require.Contains(t, section(name), "<b>Fairness ", name)
		require.Contains(t, section(name), "<b>Latency ", name)
	}
	for _, name := range []string{"lock", "oversub"} {
		require.Contains(t, section(name), "<b>Handovers ", name)
		require.Contains(t, section(name), "25 % moved", name)
	}
	require.Contains(t, section("stream"), "<b>Loaded latency against bandwidth")
	require.Contains(t, section("fence"), "<b>Fence against busy CPUs")
	require.Contains(t, section("oversub"), "shmsync:mutex 20us", "a line for each spin budget")
	require.Equal(t, strings.Count(page, "<figure>"), strings.Count(page, "</svg>"))
}

// The page has no figures for which there are not enough results: here, one repetition of few cells.
func TestFiguresOfLittle(t *testing.T) {
	file := keepMadeUp(t, func(d *Document) {
		d.Cells = slices.DeleteFunc(d.Cells, func(c Cell) bool { return c.Subject != "shmsync:mutex" || c.Scenario != "lock" })
	})
	d, err := ReadDocument(file)
	require.NoError(t, err)
	page := pageOf(t, d)
	require.NotContains(t, page, "<b>Side by side")
	require.NotContains(t, page, "<b>Handovers")
	require.NotContains(t, page, "<b>Wake latency")
	require.NotContains(t, page, "<b>Recovery")
}

// TestSideBySideClips checks that the bar of a subject that is far worse than the others is cut off, so that the other
// bars stay readable.
func TestSideBySideClips(t *testing.T) {
	cell := func(name string, v float64) *Cell {
		return &Cell{Subject: name, Unit: "p50-ns", Reps: []Repetition{{Status: bench.StatusOK, Metrics: map[string]float64{"p50-ns": v}}}}
	}
	f := sideBySide(bench.ScenarioByName("uncontended"), "", []*Cell{cell("shmsync:x", 10), cell("c:x", 20), cell("go:x", 5000)})
	require.Contains(t, f.Caption, "longer than that")
	require.Less(t, strings.Index(string(f.SVG), "shmsync:x"), strings.Index(string(f.SVG), "c:x"), "the best first")
	require.Contains(t, string(f.SVG), "5µs", "with its figure")
	require.Nil(t, sideBySide(bench.ScenarioByName("uncontended"), "", []*Cell{cell("c:x", 20)}))
}

// Each kind of hand-over has a name on the page.
func TestHandoversHaveNames(t *testing.T) { require.Len(t, handoverNames, len(bench.HandoverKinds)) }

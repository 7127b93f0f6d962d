//go:build linux

package report

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/stats"
)

func pointIntervals(all ...float64) (list []stats.Interval) {
	for _, v := range all {
		list = append(list, stats.Interval{Center: v, Lo: v, Hi: v})
	}
	return list
}

// TestBarScale checks that the scale of bars begins at 0 if all of them are visible on it, and that the scale is
// logarithmic otherwise.
func TestBarScale(t *testing.T) {
	near := scaleOf(pointIntervals(3, 10, 30))
	require.Empty(t, near.label("p50-ns"))
	require.Empty(t, near.marks())
	require.InDelta(t, 10, near.at(3), 1e-9)

	far := scaleOf(pointIntervals(3, 800, 0))
	require.Equal(t, "logarithmic from 1ns to 1µs, lines at each power of ten", far.label("p50-ns"))
	require.InDeltaSlice(t, []float64{100.0 / 3, 200.0 / 3}, far.marks(), 1e-6)
	require.Greater(t, far.at(3), 10.0, "the shortest can be seen")
	require.InDelta(t, 96.8, far.at(800), 0.1)
	require.Zero(t, far.at(0))
	require.Greater(t, scaleOf(pointIntervals(1, 100)).at(1), 10.0, "even where a power of ten is the least")
	require.Zero(t, scaleOf(pointIntervals(0)).at(0))
	require.Zero(t, scaleOf(nil).at(1))
}

// On a logarithmic scale, the page has lines at the powers of ten.
func TestBarsFarApartOnThePage(t *testing.T) {
	file := keepMadeUp(t, func(d *Document) {
		d.Cells = d.Cells[:3]
		for i := range d.Cells {
			scale(d, i, []float64{1e-3, 1, 1e3}[i])
		}
	})
	d, err := ReadDocument(file)
	require.NoError(t, err)
	page := pageOf(t, d)
	require.Contains(t, page, "logarithmic from 0.10ns to 10ms")
	require.GreaterOrEqual(t, strings.Count(page, `<b style="left:`), 3*6)
}

// If one parameter has several values, the page has a curve. If two parameters have several values, it has a map.
func TestSweeps(t *testing.T) {
	file := keepMadeUp(t, func(d *Document) {
		var cells []Cell
		for _, c := range d.Cells {
			for _, p := range sweeps[c.Scenario] {
				for i, v := range []string{"2", "8", "64"} {
					for _, procs := range []string{"1", "3"} {
						other := c
						other.Params = maps.Clone(c.Params)
						other.Params[p.param] = v
						if other.Params["procs"] != "" {
							other.Params["procs"] = procs
						}
						other.Key += fmt.Sprintf("/%s/%d/%s", p.param, i, procs)
						cells = append(cells, other)
					}
				}
			}
		}
		d.Cells = cells
	})
	d, err := ReadDocument(file)
	require.NoError(t, err)
	page := pageOf(t, d)
	for name, list := range sweeps {
		for _, p := range list {
			require.Contains(t, page, "<b>"+strings.ToUpper(name[:1])+name[1:]+" against "+p.param, name)
		}
	}
	require.Contains(t, page, "<b>Reads and workers shmsync:rwmutex ")
	require.Contains(t, page, ">ideal</text>")
}

// TestIdeal checks that the ideal line ends at the number of CPUs, or earlier if it would rise far above the measured
// lines.
func TestIdeal(t *testing.T) {
	measured := []series{{line: []xy{{1, 10}, {8, 40}}}, {line: []xy{{1, 12}, {8, 20}}}}
	s, ok := ideal(measured, 4)
	require.True(t, ok)
	require.Equal(t, []xy{{1, 12}, {4, 48}, {8, 48}}, s.line)
	s, ok = ideal(measured, 64)
	require.True(t, ok)
	require.Len(t, s.line, 2)
	require.InDelta(t, 1.4*40, s.line[1].y, 1e-9)
	for _, cpus := range []int{0, 1} {
		_, ok = ideal(measured, cpus)
		require.False(t, ok)
	}
	_, ok = ideal(nil, 4)
	require.False(t, ok)
}

// TestReportOfTheSameTwice checks a page of two files that have measured the same cells. The page shows both results of
// such a cell next to each other, with the names of the files. The advice uses only the later result.
func TestReportOfTheSameTwice(t *testing.T) {
	dir := t.TempDir()
	keep := func(name string, f float64, only string) string {
		b, err := os.ReadFile(keepMadeUp(t, func(d *Document) {
			for i := range d.Cells {
				scale(d, i, f)
			}
			if only != "" {
				var cells []Cell
				for _, c := range d.Cells {
					if c.Scenario == only {
						cells = append(cells, c)
					}
				}
				d.Cells = cells
			}
		}))
		require.NoError(t, err)
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, b, 0o600))
		return file
	}
	before, after := keep("before.json", 1, ""), keep("after.json", 2, "lock")
	pageOfFiles := func(files ...string) string {
		d, err := ReadDocuments(files)
		require.NoError(t, err)
		var b strings.Builder
		require.NoError(t, WriteHTML(&b, d))
		return b.String()
	}
	text := pageOfFiles(before, after)
	require.Contains(t, text, "<td>shmsync:mutex (before)</td>")
	require.Contains(t, text, "<td>shmsync:mutex (after)</td>")
	require.Contains(t, text, ">shmsync:mutex (after)</text>", "in figures, too")
	require.Contains(t, text, "<td>shmsync:futex</td>", "what only one has needs no name")
	lock, _, _ := strings.Cut(strings.SplitN(text, `<h2 id="lock">`, 2)[1], "<h2 ")
	require.NotContains(t, lock, "<td>shmsync:mutex</td>")

	d, err := ReadDocuments([]string{before, after})
	require.NoError(t, err)
	one := d.latest()
	require.Less(t, len(one.Cells), len(d.Cells))
	for _, c := range one.find("lock") {
		require.Equal(t, "after", c.file)
	}
	for _, r := range glanceOf(d) {
		if strings.HasPrefix(r.What, "lock ") {
			for _, v := range r.Versus {
				require.True(t, strings.HasPrefix(v, "1 × ") || strings.HasPrefix(v, "1.00 × "), "%s: held against the peers of its own file: %s", r.Prim, v)
			}
		}
	}
	// Files with the same name are distinguished by their directories.
	other := keep("other/after.json", 3, "lock")
	text = pageOfFiles(after, other)
	require.Contains(t, text, "shmsync:mutex ("+strings.TrimSuffix(other, ".json")+")")
	require.Contains(t, text, "shmsync:mutex ("+strings.TrimSuffix(after, ".json")+")")
}

// TestGlanceGoesOn checks that a line of the overview is not cut off if it is too long, but continues on the next line.
func TestGlanceGoesOn(t *testing.T) {
	lines := glanceLines([]glanceRow{
		{"at a glance", "", "", []string{"times that of"}},
		{"multi 2×1, 64 keys, 1 a hold, uniform", "multilock", "6.71M", []string{"0.75 c:robust", "0.0828 c:futex-spin1000-more", "7.05 chan"}},
	})
	require.Len(t, lines, 3)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), TableWidth)
		require.NotContains(t, line, "…")
	}
	require.Contains(t, lines[1], "0.75 c:robust")
	require.Equal(t, utf8.RuneCountInString(lines[1][:strings.Index(lines[1], "0.75")]), strings.Index(lines[2], "0.0828"), "below each other")
	require.Contains(t, strings.Join(lines, ""), "7.05 chan")
}

// TestTablesAreNarrowed checks that a table that is too wide omits ranges and intervals, but no medians and no ratios.
func TestTablesAreNarrowed(t *testing.T) {
	long := strings.Repeat("x", 40)
	rows := narrow([][]string{
		{"", "p99-ns", "[min..max]", "closed-p99-ns", "corrected-p99-ns", "vs c:robust"},
		{long, "35.0µs", "[1ns..2µs]", "266ns", "266ns", "13.7 [2.11..25.3]"},
		{long, "skipped: for a reason"},
	})
	require.Equal(t, []string{long, "35.0µs", "266ns", "266ns", "13.7 [2.11..25.3]"}, rows[1])
	rows = narrow([][]string{
		{"", "p99-ns", "[min..max]", "closed-p99-ns", "corrected-p99-ns", "vs c:robust"},
		{long + long[:13], "35.0µs", "[1ns..2µs]", "266ns", "266ns", "13.7 [2.11..25.3]"},
		{long, "skipped: for a reason"},
	})
	require.Equal(t, "13.7", rows[1][4])
	require.Equal(t, "skipped: for a reason", rows[2][1])
}

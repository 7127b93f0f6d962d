//go:build linux

package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/bars"
	"github.com/shmsync/shmsync/internal/bench/madeup"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// The page is well-formed and complete, and loads nothing from elsewhere.
func TestHTMLReport(t *testing.T) {
	file := keepMadeUp(t, func(d *Document) {
		d.Warnings = append(d.Warnings, `<script>alert("x")</script> & more`)
		d.Bars = []bars.Result{{Name: "a bar", Verdict: "pass", Value: &stats.Interval{Center: 1, Lo: 0.5, Hi: 2, N: 3}}, {Name: "a bar that was not measured", Verdict: "open"}}
	})
	page := filepath.Join(t.TempDir(), "page.html")
	read, err := ReadDocuments([]string{file})
	require.NoError(t, err)
	require.NoError(t, CreateHTML(page, read))
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	text := string(b)
	require.NoError(t, madeup.CheckPage(text))
	require.Contains(t, text, "&lt;script&gt;")
	for _, want := range []string{"color-scheme: light dark", "prefers-color-scheme: dark", "@media print", "print-color-adjust: exact"} {
		require.Contains(t, text, want, "it can be read in the dark, and printed with its bars")
	}

	doc, err := ReadDocument(file)
	require.NoError(t, err)
	for _, s := range bench.Scenarios {
		require.Contains(t, text, `<h2 id="`+s.Name+`">`, "a section for each scenario")
		require.NotEmpty(t, sectionHelp[s.Name], s.Name)
	}
	for i := range doc.Cells {
		c := &doc.Cells[i]
		if len(c.Values(c.Unit)) > 0 {
			require.Contains(t, text, "<td>"+c.Subject+"</td>")
		}
	}
	require.Contains(t, text, "not today", "what was skipped, and why")
	require.Contains(t, text, "in sight", "what hung")
	for _, title := range []string{"<b>Latency hog=0 place=cross.</b>", "<b>Recovery ", "<b>Throughput cs="} {
		require.Contains(t, text, title)
	}
	require.Equal(t, strings.Count(text, "<figure>"), strings.Count(text, "<svg"))
	require.Greater(t, strings.Count(text, "<svg"), 10)
}

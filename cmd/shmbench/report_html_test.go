//go:build linux

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// remote are the ways in which a page can ask for something from elsewhere.
var remote = regexp.MustCompile(`(?i)(src|href|action|data)\s*=\s*["']?\s*(https?:|//|ftp:)|url\(|@import|<script|<iframe|<object|<embed`)

// The page is well-formed, complete, and needs nothing from elsewhere.
func TestHTMLReport(t *testing.T) {
	file := keepMadeUp(t, func(d *document) {
		d.Warnings = append(d.Warnings, `<script>alert("x")</script> & more`)
		d.Bars = []barResult{{Name: "a bar", Verdict: "pass", Value: &interval{Center: 1, Lo: 0.5, Hi: 2, N: 3}}, {Name: "a bar that was not measured", Verdict: "open"}}
	})
	page := filepath.Join(t.TempDir(), "page.html")
	code, _, errs := shmbench(t, "report", file, page)
	require.Zero(t, code, errs)
	b, err := os.ReadFile(page)
	require.NoError(t, err)

	depth := 0
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch tok.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	require.Zero(t, depth)
	text := string(b)
	require.Empty(t, remote.FindAllString(text, -1))
	require.Contains(t, text, "&lt;script&gt;")
	for _, want := range []string{"color-scheme: light dark", "prefers-color-scheme: dark", "@media print", "print-color-adjust: exact"} {
		require.Contains(t, text, want, "it can be read in the dark, and printed with its bars")
	}

	doc, err := readDocument(file)
	require.NoError(t, err)
	for _, s := range scenarios {
		require.Contains(t, text, `<h2 id="`+s.name+`">`, "a section for each scenario")
		require.NotEmpty(t, sectionHelp[s.name], s.name)
	}
	for i := range doc.Cells {
		c := &doc.Cells[i]
		if len(c.values(c.Unit)) > 0 {
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

	// The same by the flag of a measuring command, and to standard output.
	code, out, errs := shmbench(t, "report", file)
	require.Zero(t, code, errs)
	require.Equal(t, text, out)
	flagged := filepath.Join(t.TempDir(), "flag.html")
	code, _, errs = shmbench(t, "uncontended", "--prim=shmsync:mutex", "--time=10ms", "--warmup=1ms", "--count=1", "--cc=none", "--html", flagged)
	require.Zero(t, code, errs)
	b, err = os.ReadFile(flagged)
	require.NoError(t, err)
	require.Contains(t, string(b), "<td>shmsync:mutex</td>")
	code, _, errs = shmbench(t, "report", file, filepath.Join(t.TempDir(), "no", "such"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "no such file")
}

//go:build linux

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/madeup"
	"github.com/shmsync/shmsync/internal/bench/report"
)

// resultFile writes a file with made-up results. change may modify the document first.
func resultFile(t *testing.T, change func(*report.Document)) string {
	t.Helper()
	text, err := madeUp()
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, os.WriteFile(name, text, 0o600))
	if change != nil {
		d, err := report.ReadDocument(name)
		require.NoError(t, err)
		change(d)
		var b bytes.Buffer
		require.NoError(t, report.WriteJSON(&b, d))
		require.NoError(t, os.WriteFile(name, b.Bytes(), 0o600))
	}
	return name
}

// madeUp returns the text of a file with made-up results. It makes the text only once, because the histograms take
// longer to make than the tests take to use them.
var madeUp = sync.OnceValues(func() ([]byte, error) {
	o, results, err := madeup.Results()
	if err != nil {
		return nil, err
	}
	d, err := report.NewDocument(&report.Run{Env: host.Read(o.CPUs), Options: o, Results: results})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = report.WriteJSON(&b, d)
	return b.Bytes(), err
})

// steady sets the main metric of a cell to f, with little noise.
func steady(d *report.Document, cell int, f float64) {
	c := &d.Cells[cell]
	for i := range c.Reps {
		if c.Reps[i].Status == bench.StatusOK {
			c.Reps[i].Metrics[c.Unit] = f * (1000 + float64(i))
		}
	}
}

func TestCompare(t *testing.T) {
	before := resultFile(t, func(d *report.Document) { steady(d, 0, 1); steady(d, 1, 1); steady(d, 2, 1) })
	after := resultFile(t, func(d *report.Document) {
		steady(d, 0, 2)
		steady(d, 1, 0.5)
		steady(d, 2, 1)
		d.Cells = d.Cells[:len(d.Cells)-1]
		d.Env.Kernel = "9.9"
	})
	code, out, errs := shmbench(t, "compare", before, after)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "the kernel differs")
	require.Contains(t, out, " 2×  worse ")
	require.Contains(t, out, " 0.50×  better ")
	a, err := report.ReadDocument(before)
	require.NoError(t, err)
	require.NotContains(t, out, a.Cells[2].Key, "what is the same is not listed")
	require.Contains(t, out, " 1 better, 1 worse, ")
	require.Contains(t, out, "; 2 not measured in both")
	// A file compared with itself has no differences.
	_, out, _ = shmbench(t, "compare", "--all", before, before)
	require.Contains(t, out, " 0 better, 0 worse, ")
	require.Contains(t, out, a.Cells[2].Key)
}

// The arguments before "--" are the result files of one side, and the arguments after it are those of the other side.
// Each file is one sample.
func TestCompareSides(t *testing.T) {
	a := resultFile(t, func(d *report.Document) { steady(d, 0, 1) })
	b := resultFile(t, func(d *report.Document) { steady(d, 0, 9) })
	code, out, errs := shmbench(t, "compare", a, a, a, a, a, a, a, a, "--", b, b, b, b, b, b, b, b)
	require.Zero(t, code, errs)
	require.Contains(t, out, "n=8+8")
	require.Contains(t, out, " 1 worse, ")
	code, out, errs = shmbench(t, "compare", a, a, a, a, "--", b, b, b, b)
	require.Zero(t, code, errs)
	require.Regexp(t, `too few to be sure: a change of one of \d+ cells needs 8 on each side`, out)
	code, out, errs = shmbench(t, "compare", a, a, "--", b)
	require.Zero(t, code, errs)
	require.Contains(t, out, "2 and 1 files cannot show any change")
	for _, args := range [][]string{{"compare", a}, {"compare", a, b, b}, {"compare", "--", a, b}, {"compare", a, b, "--"}} {
		code, _, errs := shmbench(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, errs, "want ", args)
	}
}

// The path of a result file may have any bytes, even if they are not valid UTF-8.
func TestResultFileWithAnyBytes(t *testing.T) {
	dir := t.TempDir()
	whole, err := os.ReadFile(resultFile(t, nil))
	require.NoError(t, err)
	file, page := dir+"/a\xffb.json", dir+"/a\xffb.html"
	require.NoError(t, os.WriteFile(file, whole, 0o600))
	for _, args := range [][]string{{"compare", file, file}, {"export", file}, {"recommend", file}, {"report", file, page}} {
		code, _, errs := shmbench(t, args...)
		require.Zero(t, code, "%q: %s", args, errs)
	}
	require.FileExists(t, page)
}

// A file that is not a complete result file is refused, with a reason.
func TestResultFilesAreNotTrusted(t *testing.T) {
	good := resultFile(t, nil)
	whole, err := os.ReadFile(good)
	require.NoError(t, err)
	for want, content := range map[string][]byte{
		"cut short":         whole[:len(whole)/2],
		"is cut short, or":  nil,
		"no result file":    []byte(`{"a": 1}`),
		"is no result file": []byte("BenchmarkX 1 2 ns/op\n"),
		"has schema":        bytes.Replace(whole, []byte(report.Schema), []byte("shmbench/0"), 1),
		"has no cells":      []byte(`{"schema": "` + report.Schema + `"}`),
		"has no key":        []byte(`{"schema": "` + report.Schema + `", "cells": [{}]}`),
		"cannot unmarshal":  []byte(`{"schema": "` + report.Schema + `", "cells": 3}`),
	} {
		bad := filepath.Join(t.TempDir(), "bad.json")
		require.NoError(t, os.WriteFile(bad, content, 0o600))
		for _, args := range [][]string{{"compare", good, bad}, {"compare", bad, good}, {"export", bad}, {"recommend", bad}, {"report", bad}} {
			code, out, errs := shmbench(t, args...)
			require.Equal(t, exitUsage, code, want)
			require.Empty(t, out)
			require.Contains(t, errs, want)
		}
	}
	code, _, errs := shmbench(t, "compare", good, filepath.Join(t.TempDir(), "none"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "no such file")
}

func TestExport(t *testing.T) {
	file := resultFile(t, nil)
	d, err := report.ReadDocument(file)
	require.NoError(t, err)
	code, out, errs := shmbench(t, "export", file)
	require.Zero(t, code, errs)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	found := 0
	for _, row := range rows[1:] {
		if n := len(row); row[n-2] == d.Cells[0].Unit && row[0] == d.Cells[0].Scenario && row[1] == d.Cells[0].Subject {
			v, err := strconv.ParseFloat(row[n-1], 64)
			require.NoError(t, err)
			for _, r := range d.Cells[0].Reps {
				if r.Metrics[d.Cells[0].Unit] == v {
					found++
				}
			}
		}
	}
	require.GreaterOrEqual(t, found, len(d.Cells[0].Reps))

	code, out, errs = shmbench(t, "export", "--format=hgrm", file)
	require.Zero(t, code, errs)
	require.Contains(t, out, "# "+d.Cells[0].Key+", ns")
	require.Contains(t, out, "Percentile")
}

// --out writes the result file in addition to standard output.
func TestOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	var out string
	var d *report.Document
	until(func() bool {
		code, text, errs := shmbench(t, "uncontended", "--prim=shmsync:mutex", "--time=10ms", "--warmup=1ms", "--count=2", "--cc=none", "--format=csv", "--out", file)
		require.Zero(t, code, errs)
		read, err := report.ReadDocument(file)
		require.NoError(t, err)
		require.Len(t, read.Cells, 1)
		out, d = text, read
		return d.Cells[0].Unit == "p50-ns"
	})
	require.Contains(t, out, "uncontended,shmsync:mutex,")
	require.Equal(t, "p50-ns", d.Cells[0].Unit)
}

// A bad result file among good ones is refused, and an existing output file is not overwritten.
func TestReportOfBadFiles(t *testing.T) {
	good := resultFile(t, nil)
	whole, err := os.ReadFile(good)
	require.NoError(t, err)
	page := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.WriteFile(page, []byte("before"), 0o600))
	for want, content := range map[string][]byte{
		"cut short":  whole[:len(whole)-20],
		"has schema": []byte(`{"schema": "shmbench/99", "cells": [{}]}`),
		"no result":  []byte("PK\x03\x04"),
	} {
		bad := filepath.Join(t.TempDir(), "bad.json")
		require.NoError(t, os.WriteFile(bad, content, 0o600))
		code, out, errs := shmbench(t, "report", good, bad, page)
		require.Equal(t, exitUsage, code, want)
		require.Empty(t, out)
		require.Contains(t, errs, want)
		require.Contains(t, errs, bad)
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Equal(t, "before", string(b))
	}
	// Two good files become one page.
	more := resultFile(t, func(d *report.Document) {
		d.Cells = d.Cells[:1]
		d.Cells[0].Subject = "go:other"
		d.Cells[0].Key += "x"
	})
	code, out, errs := shmbench(t, "report", good, more)
	require.Zero(t, code, errs)
	require.Contains(t, out, "<td>go:other</td>")
	require.Contains(t, out, "<td>shmsync:mutex</td>")
}

// A page is the same on standard output, in a file, and with the flag --html of a measuring command.
func TestPagesOfCommands(t *testing.T) {
	file := resultFile(t, nil)
	page := filepath.Join(t.TempDir(), "page.html")
	code, _, errs := shmbench(t, "report", file, page)
	require.Zero(t, code, errs)
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	text := string(b)
	require.NoError(t, madeup.CheckPage(text))
	code, out, errs := shmbench(t, "report", file)
	require.Zero(t, code, errs)
	require.Equal(t, text, out)
	flagged := filepath.Join(t.TempDir(), "flag.html")
	until(func() bool {
		code, _, errs = shmbench(t, "uncontended", "--prim=shmsync:mutex", "--time=10ms", "--warmup=1ms", "--count=1", "--cc=none", "--html", flagged)
		require.Zero(t, code, errs)
		b, err = os.ReadFile(flagged)
		require.NoError(t, err)
		return strings.Contains(string(b), "<td>shmsync:mutex</td>")
	})
	require.Contains(t, string(b), "<td>shmsync:mutex</td>")
	code, _, errs = shmbench(t, "report", file, filepath.Join(t.TempDir(), "no", "such"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "no such file")
}

// Each section of a page is about one scenario, and names a command that measures this scenario.
func TestPagesNameCommands(t *testing.T) {
	code, page, errs := shmbench(t, "report", resultFile(t, nil))
	require.Zero(t, code, errs)
	for _, sc := range bench.Scenarios {
		_, text, found := strings.Cut(page, `<h2 id="`+sc.Name+`">`)
		require.True(t, found, sc.Name)
		_, command, _ := strings.Cut(text, "go run ./cmd/shmbench ")
		command, _, _ = strings.Cut(command, "</code>")
		code, _, errs := shmbench(t, append(strings.Fields(command), "-n")...)
		require.Zero(t, code, "%s: the command that the page names does not measure it: %s", sc.Name, errs)
	}
}

func TestRecommendCommand(t *testing.T) {
	file := resultFile(t, nil)
	code, out, errs := shmbench(t, "recommend", file)
	require.Zero(t, code, errs)
	d, err := report.ReadDocument(file)
	require.NoError(t, err)
	var text bytes.Buffer
	report.WriteAdvice(&text, report.Recommend(d))
	require.Equal(t, text.String(), out)
	code, out, errs = shmbench(t, "recommend", file, "--format=json")
	require.Zero(t, code, errs)
	b, err := json.Marshal(report.Recommend(d))
	require.NoError(t, err)
	require.JSONEq(t, string(b), out)
	code, _, errs = shmbench(t, "recommend", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, exitUsage, code)
	require.NotEmpty(t, errs)
	code, _, errs = shmbench(t, "recommend", file, "--format=csv")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "has no form")
}

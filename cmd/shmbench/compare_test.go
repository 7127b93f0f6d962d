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
)

// madeUpDocument is a document without a run behind it.
var madeUpDocument = sync.OnceValues(func() ([]byte, error) {
	d, err := newDocument(madeUp(new(testing.T)))
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
})

// keepMadeUp writes a result file, after change has had its way with it.
func keepMadeUp(t *testing.T, change func(*document)) string {
	t.Helper()
	b, err := madeUpDocument()
	require.NoError(t, err)
	if change != nil {
		var d document
		require.NoError(t, json.Unmarshal(b, &d))
		change(&d)
		b, err = json.Marshal(d)
		require.NoError(t, err)
	}
	name := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, os.WriteFile(name, b, 0o600))
	return name
}

// scale has a cell's main metric be what it is in a result of its own, times f, with
// little noise.
func scale(d *document, cell int, f float64) {
	c := &d.Cells[cell]
	for i := range c.Reps {
		if c.Reps[i].Status == statusOK {
			c.Reps[i].Metrics[c.Unit] = f * (1000 + float64(i))
		}
	}
}

func TestCompare(t *testing.T) {
	before := keepMadeUp(t, func(d *document) { scale(d, 0, 1); scale(d, 1, 1); scale(d, 2, 1) })
	after := keepMadeUp(t, func(d *document) {
		scale(d, 0, 2)
		scale(d, 1, 0.5)
		scale(d, 2, 1)
		d.Cells = d.Cells[:len(d.Cells)-1]
		d.Env.Kernel = "9.9"
	})
	code, out, errs := shmbench(t, "compare", before, after)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "the kernel differs")
	require.Contains(t, out, "+100.00%")
	require.Contains(t, out, "-50.00%")
	a, err := readDocument(before)
	require.NoError(t, err)
	require.NotContains(t, out, a.Cells[2].Key, "what is the same is not listed")
	require.Contains(t, out, " 1 better, 1 worse, ")
	require.Contains(t, out, "; 2 not measured in both")
	// A file with itself: nothing differs.
	_, out, _ = shmbench(t, "compare", "--all", before, before)
	require.Contains(t, out, " 0 better, 0 worse, ")
	require.Contains(t, out, a.Cells[2].Key)
}

// What is no result file, or half of one, is refused with a reason.
func TestResultFilesAreNotTrusted(t *testing.T) {
	good := keepMadeUp(t, nil)
	whole, err := os.ReadFile(good)
	require.NoError(t, err)
	for want, content := range map[string][]byte{
		"cut short":         whole[:len(whole)/2],
		"is cut short, or":  nil,
		"no result file":    []byte(`{"a": 1}`),
		"is no result file": []byte("BenchmarkX 1 2 ns/op\n"),
		"has schema":        bytes.Replace(whole, []byte(jsonSchema), []byte("shmbench/0"), 1),
		"has no cells":      []byte(`{"schema": "` + jsonSchema + `"}`),
		"has no key":        []byte(`{"schema": "` + jsonSchema + `", "cells": [{}]}`),
		"cannot unmarshal":  []byte(`{"schema": "` + jsonSchema + `", "cells": 3}`),
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
	file := keepMadeUp(t, nil)
	d, err := readDocument(file)
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

// --out writes the result file beside what standard output gets.
func TestOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	code, out, errs := shmbench(t, "uncontended", "--prim=shmsync:mutex", "--time=10ms", "--warmup=1ms", "--count=2", "--cc=none", "--format=csv", "--out", file)
	require.Zero(t, code, errs)
	require.Contains(t, out, "uncontended,shmsync:mutex,")
	d, err := readDocument(file)
	require.NoError(t, err)
	require.Len(t, d.Cells, 1)
	require.Equal(t, "p50-ns", d.Cells[0].Unit)
}

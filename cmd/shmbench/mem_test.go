//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/report"
)

func TestMemUsage(t *testing.T) {
	for _, args := range [][]string{{"mem", "--mem=bind:900"}, {"mem", "--mem=bind:x"}, {"mem", "--huge=3M"}, {"mem", "--nodes=900"}, {"mem", "--mib=-1"}} {
		code, _, errs := shmbench(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs, args)
	}
}

// TestMemRuns checks that the memory of a mem cell is on the requested nodes, or that the cell says why it was skipped.
func TestMemRuns(t *testing.T) {
	page := filepath.Join(t.TempDir(), "mem.html")
	wanted := []string{"chase-ns", "scan-MB/s", "data-ns"}
	complete := func(c report.Cell) bool {
		return c.Status != bench.StatusOK || !slices.ContainsFunc(wanted, func(m string) bool { return c.Summary[m].Center <= 0 })
	}
	ran, placed := 0, 0
	for _, c := range measured(t, complete, "mem", "--mib=4", "--mem=first-touch,bind", "--warmup=2ms", "--count=1", "--cc=none", "--html", page).Cells {
		if needsPlacement(c) || c.Status == bench.StatusSkipped && c.Params["huge"] != "none" {
			require.NotEmpty(t, c.Reason, c.Key)
			continue
		}
		ran++
		require.Equal(t, bench.StatusOK, c.Status, "%s: %s", c.Key, c.Reason)
		for _, m := range wanted {
			require.Positive(t, c.Summary[m].Center, c.Key)
		}
		p := c.Reps[0].Placement
		require.NotNil(t, p, c.Key)
		require.Equal(t, c.Params["mem"], p.Asked)
		if p.Note != "" {
			continue // the system does not report where pages are
		}
		require.InDelta(t, 100, p.Heeded(), 1, "%s: %v", c.Key, p)
		require.Zero(t, p.Gone)
		placed++
	}
	require.Positive(t, ran)
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	if placed > 0 {
		require.Contains(t, string(b), "<b>Memory placement asked and got.</b>")
		require.Contains(t, string(b), "as asked")
	}
}

func TestMemTable(t *testing.T) {
	code, out, errs := shmbench(t, "mem", "--mib=4", "--mem=bind", "--huge=none,1G", "--time=20ms", "--warmup=2ms", "--count=1", "--cc=none")
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "asked  ")
	require.Contains(t, out, "node 0")
	for line := range strings.Lines(out) {
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), report.TableWidth, line)
	}
}

// TestMemSeesViolations checks that a mem cell detects memory that loses what was written.
func TestMemSeesViolations(t *testing.T) {
	out, _ := violated(t, "mem", "--mib=4", "--prim=test:forgetful", "--mem=first-touch", "--huge=none", "--time=200ms", "--warmup=2ms",
		"--count=1", "--format=json", "--cc=none")
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, bench.StatusViolation, c.Status)
		require.Regexp(t, "chain came back|words add up", c.Reason)
	}
}

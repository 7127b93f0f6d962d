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
	"github.com/shmsync/shmsync/internal/bench/madeup"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/report"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

func needTwoCPUs(t *testing.T) []int {
	t.Helper()
	cpus, err := place.AllowedCPUs()
	require.NoError(t, err)
	if len(cpus) < 2 {
		t.Skip("needs two CPUs")
	}
	return cpus
}

func TestMatrixRuns(t *testing.T) {
	cpus := needTwoCPUs(t)
	pair := []int{cpus[0], cpus[1]}
	page, file := filepath.Join(t.TempDir(), "m.html"), filepath.Join(t.TempDir(), "m.json")
	var out string
	until(func() bool {
		code, text, errs := shmbench(t, "matrix", "--cpus="+strings.Trim(place.JoinInts(pair), "[]"), "--time=20ms", "--warmup=2ms", "--count=2", "--html", page, "--out", file)
		require.Equal(t, exitOK, code, errs)
		d, err := report.ReadDocument(file)
		require.NoError(t, err)
		out = text
		return !slices.ContainsFunc(d.Cells, func(c report.Cell) bool { return len(c.Values("p50-ns")) < 2 })
	})
	require.Contains(t, out, "note: matrix: two CPUs are one pair")
	require.Contains(t, out, "matrix  go:one-line, one way, in ns")
	require.Contains(t, out, "matrix  go:two-lines, one way, in ns")
	require.Contains(t, out, "recommendations")
	d, err := report.ReadDocument(file)
	require.NoError(t, err)
	require.Len(t, d.Cells, 4, "two directions of two subjects")
	require.NotNil(t, d.Topology)
	for _, c := range d.Cells {
		require.Equal(t, bench.StatusOK, c.Status, c.Reason)
		for _, v := range c.Values("p50-ns") {
			require.Greater(t, v, 0.5, c.Key)
			require.Less(t, v, 1e9, c.Key)
		}
	}
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	text := string(b)
	require.NoError(t, madeup.CheckPage(text))
	for _, want := range []string{"<b>Matrix go:one-line.</b>", "<b>Matrix go:two-lines.</b>", "<b>Topology.</b>", `<h2 id="advice">`, "matrix: two CPUs are one pair"} {
		require.Contains(t, text, want)
	}
}

// For a matrix of all pairs of a large host, the program prints a plan with an estimate of the time.
func TestMatrixOfAllPairsHasAnEstimate(t *testing.T) {
	file := topotest.File("hosts/epyc9654-2p-nps4.tree")
	code, out, errs := shmbench(t, "matrix", "--all", "-n", "--topology", file)
	require.Equal(t, exitOK, code, errs)
	require.Regexp(t, `\n73536 cells × 1 repetitions, about 4m54\.\ds, seed 1\n$`, out)
	require.NotContains(t, out, "two-lines")
	code, _, errs = shmbench(t, "matrix", "--all", "--sample=llc", "-n", "--topology", file)
	require.NotEqual(t, exitOK, code)
	require.Contains(t, errs, "--all")
}

func TestMatrixSeesViolations(t *testing.T) {
	cpus := needTwoCPUs(t)
	two := "--cpus=" + place.JoinInts(cpus[:2])
	for _, which := range []string{"--place=cross", two} { // one pair of CPUs, and a tour of this pair in both orders
		_, errs := violated(t, "matrix", which, "--prim=test:miscount", "--time=10ms", "--warmup=1ms", "--count=1")
		require.Contains(t, errs, "round trips were made, and")
	}
}

// The two ends of a pair spin for each other, so each needs a CPU of its own.
func TestMatrixNeedsTwoCPUs(t *testing.T) {
	cpus, err := place.AllowedCPUs()
	require.NoError(t, err)
	for _, args := range [][]string{{"--cpus=" + place.JoinInts(cpus[:1])}, {"--place=same"}, {"--place=any"}} {
		code, out, errs := shmbench(t, append(args, "matrix", "--prim=go:one-line", "--time=5ms", "--count=1", "--strict")...)
		require.Equal(t, exitSkipped, code, errs)
		require.Contains(t, out, "needs")
	}
}

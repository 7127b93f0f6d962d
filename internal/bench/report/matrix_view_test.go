//go:build linux

package report

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/madeup"
)

// TestClusters checks that the method clusters finds the groups of CPUs by the measured times alone, without the
// topology.
func TestClusters(t *testing.T) {
	for _, c := range []struct {
		name string
		cpus []int
		of   func(a, b int) float64
		want [][][]int
	}{
		{"alike", []int{0, 1, 2, 3}, func(a, b int) float64 { return 100 + 5*float64((a+b)%3) }, nil},
		{"two halves", []int{0, 1, 2, 3}, func(a, b int) float64 { return map[bool]float64{true: 40, false: 110}[a/2 == b/2] }, [][][]int{{{0, 1}, {2, 3}}}},
		{"interleaved", []int{0, 1, 2, 3}, func(a, b int) float64 { return map[bool]float64{true: 40, false: 110}[a%2 == b%2] }, [][][]int{{{0, 2}, {1, 3}}}},
		{"two levels", []int{0, 1, 2, 3, 4, 5, 6, 7}, func(a, b int) float64 {
			switch {
			case a/2 == b/2:
				return 20
			case a/4 == b/4:
				return 60
			}
			return 200
		}, [][][]int{{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {{0, 1, 2, 3}, {4, 5, 6, 7}}}},
		{"one far away", []int{0, 1, 2}, func(a, b int) float64 { return map[bool]float64{true: 300, false: 50}[a == 2 || b == 2] }, [][][]int{{{0, 1}, {2}}}},
		{"not all measured", []int{0, 1, 2, 3}, func(a, b int) float64 { return map[bool]float64{true: 40, false: math.NaN()}[a/2 == b/2] }, nil},
	} {
		m := &pairs{cpus: c.cpus, medians: map[[2]int]float64{}}
		for _, a := range c.cpus {
			for _, b := range c.cpus {
				if v := c.of(a, b); a != b && !math.IsNaN(v) {
					m.medians[[2]int{a, b}] = v
				}
			}
		}
		require.Equal(t, c.want, m.clusters(), c.name)
		require.NotEmpty(t, m.clusterText())
	}
}

// TestMatrixTables checks that a matrix that is too large for a table is summarized, and that no line is wider than
// TableWidth.
func TestMatrixTables(t *testing.T) {
	for _, tree := range []string{"two-socket", "nps4"} {
		d := syntheticMatrix(t, tree, 3, func(a, b, _ int) float64 { return 50 + float64(10*abs(a-b)) })
		var b bytes.Buffer
		writeMatrix(&b, d)
		for line := range strings.Lines(b.String()) {
			require.LessOrEqual(t, len([]rune(line)), TableWidth+1, line)
		}
		if tree == "nps4" {
			require.Contains(t, b.String(), "  node ")
			require.Contains(t, b.String(), "median")
		}
		page := new(bytes.Buffer)
		require.NoError(t, WriteHTML(page, d))
		require.NoError(t, madeup.CheckPage(page.String()))
		require.Equal(t, len(d.Cells), strings.Count(page.String(), "<title>from "), "a square for each pair")
		require.Contains(t, page.String(), "by how far apart the CPUs are")
		require.Contains(t, page.String(), "<b>Distances.</b>")
	}
}

// Pairs without a figure are counted, with the reason.
func TestMatrixSaysWhatItLacks(t *testing.T) {
	d := syntheticMatrix(t, "two-socket", 3, func(a, b, _ int) float64 { return 50 })
	for i := range d.Cells {
		if i < 5 {
			d.Cells[i].Status, d.Cells[i].Reason, d.Cells[i].Reps = bench.StatusHung, "no end in sight", nil
		} else if i < 7 {
			d.Cells[i].Reps = nil
		}
	}
	var b bytes.Buffer
	writeMatrix(&b, d)
	require.Contains(t, b.String(), "5 pairs without a figure, go:one-line hung: no end in sight")
	require.Contains(t, b.String(), "2 pairs without a figure, go:one-line too few samples")
	require.NoError(t, WriteHTML(new(bytes.Buffer), d))
}

func abs(x int) int { return max(x, -x) }

//go:build linux

package main

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/topology"
)

func needTwoCPUs(t *testing.T) []int {
	t.Helper()
	cpus, err := allowedCPUs()
	require.NoError(t, err)
	if len(cpus) < 2 {
		t.Skip("one CPU")
	}
	return cpus
}

func TestMatrixRuns(t *testing.T) {
	cpus := needTwoCPUs(t)
	pair := []int{cpus[0], cpus[1]}
	page, file := filepath.Join(t.TempDir(), "m.html"), filepath.Join(t.TempDir(), "m.json")
	code, out, errs := shmbench(t, "matrix", "--cpus="+strings.Trim(joinInts(pair), "[]"), "--time=20ms", "--warmup=2ms", "--count=2", "--html", page, "--out", file)
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "note: matrix: two CPUs are one pair")
	require.Contains(t, out, "matrix  go:one-line, one way, in ns")
	require.Contains(t, out, "matrix  go:two-lines, one way, in ns")
	require.Contains(t, out, "recommendations")
	d, err := readDocument(file)
	require.NoError(t, err)
	require.Len(t, d.Cells, 4, "two directions of two subjects")
	require.NotNil(t, d.Topology)
	for _, c := range d.Cells {
		require.Equal(t, statusOK, c.Status, c.Reason)
		for _, v := range c.values("p50-ns") {
			require.Greater(t, v, 0.5, c.Key)
			require.Less(t, v, 1e7, c.Key)
		}
	}
	require.Len(t, matrices(d), 2)
	text := string(mustRead(t, page))
	requireWellFormed(t, text)
	for _, want := range []string{"<b>Matrix go:one-line.</b>", "<b>Matrix go:two-lines.</b>", "<b>Topology.</b>", `<h2 id="advice">`, "matrix: two CPUs are one pair"} {
		require.Contains(t, text, want)
	}
}

func TestMatrixSeesViolations(t *testing.T) {
	needTwoCPUs(t)
	code, _, errs := shmbench(t, "matrix", "--prim=test:miscount", "--place=cross", "--time=10ms", "--warmup=1ms", "--count=1")
	require.Equal(t, exitViolation, code)
	require.Contains(t, errs, "round trips were made, and")
}

// Ends that spin for each other need a CPU each.
func TestMatrixNeedsTwoCPUs(t *testing.T) {
	cpus, err := allowedCPUs()
	require.NoError(t, err)
	for _, args := range [][]string{{"--cpus=" + joinInts(cpus[:1])}, {"--place=same"}, {"--place=any"}} {
		code, out, errs := shmbench(t, append(args, "matrix", "--prim=go:one-line", "--time=5ms", "--count=1", "--strict")...)
		require.Equal(t, exitSkipped, code, errs)
		require.Contains(t, out, "needs")
	}
}

func TestMatrixChoosesPairs(t *testing.T) {
	for _, c := range []struct {
		tree   string
		sample string
		brief  bool
		want   int
		note   string
	}{
		{"two-socket", "auto", false, 8 * 7, ""},
		{"nps4", "auto", false, 16 * 15, ""},
		{"nps4", "", false, 2 * (4*2 + 4*3/2), "some of each node"},
		{"nps4", "llc", false, 2 * (8 + 8*7/2), "some of each llc"},
		{"nps4", "node", false, 2 * (4*2 + 4*3/2), "some of each node"},
		{"nps4", "", true, 2 * 3, "some of each class"},
		{"two-socket", "", true, 2 * (2*2 + 1), "some of each llc"},
		{"two-socket", "class", false, 2 * 3, "some of each class"},
		{"hybrid", "llc", false, 2 * (2 + 1 + 1), "some of each llc"},
		{"cpuless", "", true, 4 * 3, ""},
	} {
		top := hostOf(t, c.tree)
		o := &options{Topology: top, CPUs: top.IDs(), Sample: c.sample, Brief: c.brief}
		places, note := o.matrixPlaces()
		require.Len(t, places, c.want, "%s %s", c.tree, c.sample)
		require.Contains(t, note, c.note)
		require.Equal(t, c.note == "", note == "")
		seen := map[string]bool{}
		for _, p := range places {
			require.False(t, seen[p], p)
			seen[p] = true
			cpus, err := parsePair(p)
			require.NoError(t, err)
			require.Len(t, cpus, 2)
		}
		for p := range seen {
			cpus, _ := parsePair(p)
			require.True(t, seen[topology.JoinCPUs([]int{cpus[1], cpus[0]})], "both directions of %s", p)
		}
	}
	o := &options{CPUs: []int{3}}
	places, _ := o.matrixPlaces()
	require.Equal(t, []string{placeCross}, places, "a cell that says why it does not run")
}

func TestMatrixNotes(t *testing.T) {
	for tree, want := range map[string]string{"hybrid": "one NUMA node", "two-socket": ""} {
		top := hostOf(t, tree)
		require.Contains(t, strings.Join((&options{Topology: top, CPUs: top.IDs()}).matrixNotes(), "\n"), want)
	}
	top := hostOf(t, "cpuless")
	require.Contains(t, strings.Join((&options{Topology: top, CPUs: top.IDs()}).matrixNotes(), "\n"), "one NUMA node and one last-level cache")
	require.Empty(t, (&options{Topology: hostOf(t, "two-socket"), CPUs: []int{0, 1, 2, 3}}).matrixNotes())
}

// Clusters are found without the help of the host, from small to large.
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
		m := &pairs{cpus: c.cpus, samples: map[[2]int][]float64{}}
		for _, a := range c.cpus {
			for _, b := range c.cpus {
				if v := c.of(a, b); a != b && !math.IsNaN(v) {
					m.samples[[2]int{a, b}] = []float64{v, v * 1.02, v * 0.97}
				}
			}
		}
		require.Equal(t, c.want, m.clusters(), c.name)
		require.NotEmpty(t, m.clusterText())
	}
}

// A large matrix is summed up where it does not fit; tables keep to their width.
func TestMatrixTables(t *testing.T) {
	for _, tree := range []string{"two-socket", "nps4"} {
		d := syntheticMatrix(t, tree, 3, func(a, b, _ int) float64 { return 50 + float64(10*abs(a-b)) })
		var b bytes.Buffer
		writeMatrix(&b, d)
		for line := range strings.Lines(b.String()) {
			require.LessOrEqual(t, len([]rune(line)), tableWidth+1, line)
		}
		if tree == "nps4" {
			require.Contains(t, b.String(), "node-other-llc")
			require.Contains(t, b.String(), "median")
		}
		page := new(bytes.Buffer)
		require.NoError(t, writeHTML(page, d))
		requireWellFormed(t, page.String())
		require.Equal(t, len(d.Cells), strings.Count(page.String(), "<title>from "), "a square for each pair")
		require.Contains(t, page.String(), "by how far apart the CPUs are")
		require.Contains(t, page.String(), "<b>Distances.</b>")
	}
}

// Pairs without a figure are counted, and the reason is said.
func TestMatrixSaysWhatItLacks(t *testing.T) {
	d := syntheticMatrix(t, "two-socket", 3, func(a, b, _ int) float64 { return 50 })
	for i := range d.Cells {
		if i < 5 {
			d.Cells[i].Status, d.Cells[i].Reason, d.Cells[i].Reps = statusHung, "no end in sight", nil
		} else if i < 7 {
			d.Cells[i].Reps = nil
		}
	}
	var b bytes.Buffer
	writeMatrix(&b, d)
	require.Contains(t, b.String(), "5 pairs without a figure, go:one-line hung: no end in sight")
	require.Contains(t, b.String(), "2 pairs without a figure, go:one-line too few samples")
	require.NoError(t, writeHTML(new(bytes.Buffer), d))
}

// Who gets all pairs is not told that some are missing.
func TestMatrixOfAllPairsHasNoNote(t *testing.T) {
	top := hostOf(t, "memoryless")
	for _, sample := range sampleModes {
		o := &options{Topology: top, CPUs: []int{0, 2, 4}, Sample: sample}
		places, note := o.matrixPlaces()
		require.Equal(t, len(places) == 6, note == "", sample)
	}
}

func abs(x int) int { return max(x, -x) }

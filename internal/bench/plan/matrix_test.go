//go:build linux

package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

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
		{"hybrid", "llc", false, 2 * (3 + 1 + 1), "some of each llc"},
		{"cpuless", "", true, 4 * 3, ""},
	} {
		top := topotest.Host(t, c.tree)
		o := &Options{Topology: top, CPUs: top.IDs(), Sample: c.sample, Brief: c.brief}
		places, note := o.matrixPlaces()
		require.Len(t, places, c.want, "%s %s", c.tree, c.sample)
		require.Contains(t, note, c.note)
		require.Equal(t, c.note == "", note == "")
		seen := map[string]bool{}
		for _, p := range places {
			require.False(t, seen[p], p)
			seen[p] = true
			cpus, err := place.ParsePair(p)
			require.NoError(t, err)
			require.Len(t, cpus, 2)
		}
		for p := range seen {
			cpus, _ := place.ParsePair(p)
			require.True(t, seen[topology.JoinCPUs([]int{cpus[1], cpus[0]})], "both directions of %s", p)
		}
	}
	top := topotest.Host(t, "hosts/epyc9654-2p-nps4")
	o := &Options{Topology: top, CPUs: top.IDs(), Brief: true, Map: true}
	places, note := o.matrixPlaces()
	require.Len(t, places, 24*23+2*24*2, "all pairs of 24 caches, and two kinds of pairs within each")
	require.Contains(t, note, "some of each llc")
	o = &Options{CPUs: []int{3}}
	places, _ = o.matrixPlaces()
	require.Equal(t, []string{bench.PlaceCross}, places, "a cell that says why it does not run")
}

func TestMatrixNotes(t *testing.T) {
	for tree, want := range map[string]string{"hybrid": "one NUMA node", "two-socket": ""} {
		top := topotest.Host(t, tree)
		require.Contains(t, strings.Join((&Options{Topology: top, CPUs: top.IDs()}).MatrixNotes(), "\n"), want)
	}
	top := topotest.Host(t, "cpuless")
	require.Contains(t, strings.Join((&Options{Topology: top, CPUs: top.IDs()}).MatrixNotes(), "\n"), "one NUMA node and one last-level cache")
	require.Empty(t, (&Options{Topology: topotest.Host(t, "two-socket"), CPUs: []int{0, 1, 2, 3}}).MatrixNotes())
}

// If the plan has all pairs, there is no note that some are missing.
func TestMatrixOfAllPairsHasNoNote(t *testing.T) {
	top := topotest.Host(t, "memoryless")
	for _, sample := range sampleModes {
		o := &Options{Topology: top, CPUs: []int{0, 2, 4}, Sample: sample}
		places, note := o.matrixPlaces()
		require.Equal(t, len(places) == 6, note == "", sample)
	}
}

// A class in the default plan stands for up to 64 pairs of CPUs, or for all of its pairs if there are fewer. The
// rounds together visit all of these pairs. For other placements the plan draws no pairs.
func TestClassesOfThePlanHave64Pairs(t *testing.T) {
	for _, file := range recordings(t) {
		o, cells := defaultPlan(t, file)
		count := map[topology.Class]int{}
		for i, a := range o.CPUs {
			for _, b := range o.CPUs[i+1:] {
				count[o.Topology.Class(a, b)]++
			}
		}
		mapped := map[topology.Class]bool{}
		for _, c := range cells {
			class := topology.Class(c.Place)
			if c.Scenario.Name != "matrix" || !class.Valid() {
				require.Empty(t, c.Pairs, c.Key())
				continue
			}
			mapped[class] = true
			require.Len(t, c.Pairs, min(ClassPairs, count[class]), "%s: %s", file, class)
			visited := map[[2]int]bool{}
			for round := range o.Count {
				for _, pair := range c.PairsOf(round, o.CPUs) {
					require.Equal(t, class, o.Topology.Class(pair[0], pair[1]))
					visited[pair] = true
				}
			}
			require.Len(t, visited, len(c.Pairs), "%s: %s: rounds visit all of them", file, class)
		}
		require.Len(t, mapped, len(o.classes()), file)
	}
	o, _ := defaultPlan(t, topotest.File("two-by-96.tree"))
	require.Contains(t, strings.Join(o.MatrixNotes(), "\n"), "up to 64 pairs of CPUs stand for a class, and each repetition visits up to 6")
	o, _ = defaultPlan(t, topotest.File("hosts/vm-2cpu.tree"))
	require.NotContains(t, strings.Join(o.MatrixNotes(), "\n"), "stand for a class")
}

// A matrix of all pairs has each pair of CPUs in both directions, but only in one direction on a host with many CPUs.
func TestMatrixOfAllPairs(t *testing.T) {
	for host, directions := range map[string]int{"hosts/vm-2cpu": 2, "hosts/opteron-4p8n-sparse": 2, "hosts/graviton3": 1, "hosts/epyc9654-2p-nps4": 1} {
		top := topotest.Host(t, host)
		o := &Options{Topology: top, CPUs: top.Usable(), AllPairs: true, Prims: []string{"go:one-line"}, Time: 1, Count: 1}
		n := len(o.CPUs)
		cells, err := Cells(o, "matrix")
		require.NoError(t, err, "no bound of the number of cells")
		require.Len(t, cells, directions*n*(n-1)/2, host)
		require.Equal(t, directions == 1, o.ManyPairs(), host)
		seen := map[[2]int]int{}
		for _, c := range cells {
			a, b := c.CPUOf(0, o.CPUs), c.CPUOf(1, o.CPUs)
			require.NotEqual(t, a, b)
			seen[[2]int{min(a, b), max(a, b)}]++
		}
		require.Len(t, seen, n*(n-1)/2, host)
		require.Equal(t, directions == 1, strings.Contains(strings.Join(o.MatrixNotes(), "\n"), "each in one direction"))
	}
}

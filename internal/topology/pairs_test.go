package topology

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// recordedPairs returns the number of pairs of each class on a host, by a search of all pairs.
func recordedPairs(t *Topology, cpus []int) map[Class]int {
	count := map[Class]int{}
	for i, a := range cpus {
		for _, b := range cpus[i+1:] {
			count[t.Class(a, b)]++
		}
	}
	return count
}

// TestPairsOfRecordedHosts checks on each recorded host that Pairs draws 64 different pairs of CPUs for each class, or
// all pairs of a class that has fewer. The same seed draws the same pairs.
func TestPairsOfRecordedHosts(t *testing.T) {
	const most = 64
	hosts, err := filepath.Glob(filepath.Join("testdata", "hosts", "*.tree"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join("testdata", "*.tree"))
	require.NoError(t, err)
	require.Greater(t, len(hosts)+len(more), 50)
	for _, file := range append(hosts, more...) {
		top, err := Recorded(file)
		require.NoError(t, err)
		cpus := top.Usable()
		for class, all := range recordedPairs(top, cpus) {
			pairs := top.Pairs(cpus, class, most, 5)
			require.Len(t, pairs, min(all, most), "%s %s", file, class)
			seen := map[[2]int]bool{}
			for _, p := range pairs {
				require.Equal(t, class, top.Class(p[0], p[1]), "%s %v", file, p)
				require.Subset(t, cpus, p[:])
				seen[[2]int{min(p[0], p[1]), max(p[0], p[1])}] = true
			}
			require.Len(t, seen, len(pairs), "%s %s", file, class)
			require.Equal(t, pairs, top.Pairs(cpus, class, most, 5))
			spare := all // number of pairs without CPU 0
			for _, id := range cpus {
				if id != 0 && slices.Contains(cpus, 0) && top.Class(0, id) == class {
					spare--
				}
			}
			zero := 0
			for _, p := range pairs[1:] {
				if p[0] == 0 || p[1] == 0 {
					zero++
				}
			}
			require.LessOrEqual(t, zero, max(len(pairs)-spare, 0), "%s %s", file, class)
			if first := top.Representative(cpus, class); len(first) > 1 {
				require.Equal(t, [2]int{first[0], first[1]}, pairs[0], "%s %s", file, class)
			}
		}
	}
}

// TestPairsAreSpreadOverNodes checks that the pairs of a class are spread over all pairs of nodes with that class, in
// both directions, and that they avoid CPU 0.
func TestPairsAreSpreadOverNodes(t *testing.T) {
	top, err := Recorded(filepath.Join("testdata", "two-by-96.tree"))
	require.NoError(t, err)
	cpus := top.Usable()
	pairs := top.Pairs(cpus, "remote-32", 64, 1)
	nodes, up := map[[2]int]int{}, 0
	for _, p := range pairs {
		x, _ := top.CPU(p[0])
		y, _ := top.CPU(p[1])
		nodes[[2]int{min(x.Node, y.Node), max(x.Node, y.Node)}]++
		if p[0] < p[1] {
			up++
		}
		require.NotContains(t, p, 0)
	}
	require.Len(t, nodes, 16, "4 nodes of a package with 4 of the other")
	for key, n := range nodes {
		require.InDelta(t, 4, n, 1, "%v", key)
	}
	require.Greater(t, up, 16)
	require.Less(t, up, 48)
	require.NotEqual(t, pairs, top.Pairs(cpus, "remote-32", 64, 2), "another seed draws other pairs")
	require.Len(t, top.Pairs([]int{0, 1}, top.Class(0, 1), 64, 1), 1, "also with CPU 0 if there is no other")
	require.Empty(t, top.Pairs(cpus, "remote-99", 64, 1))
}

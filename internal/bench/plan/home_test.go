//go:build linux

package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// homesOf returns the NUMA nodes on which the home cells of a subject have their memory, by placement and home. For a
// home that does not exist on the host, it returns the reason.
func homesOf(t *testing.T, host string) (nodes map[string]int, skipped map[string]string) {
	t.Helper()
	o := &Options{Recording: topotest.File(host + ".tree"), Prims: []string{"shmsync:mutex"}, Time: time.Millisecond, Count: 1, Kills: 1, Timeout: time.Second, Gap: UsualGap}
	require.NoError(t, o.Complete(nil, nil))
	o.Suite = true
	cells, err := Cells(o, "home")
	require.NoError(t, err)
	nodes, skipped = map[string]int{}, map[string]string{}
	for _, c := range cells {
		if name := c.Place + " " + c.Home; c.Skip == "" {
			nodes[name] = c.HomeNode
		} else {
			skipped[name] = c.Skip
		}
	}
	return nodes, skipped
}

// TestHomesOfRecordedHosts checks that a home is one of three nodes with memory: the node nearest to the first CPU, the
// node nearest to the second CPU, or the farthest other node.
func TestHomesOfRecordedHosts(t *testing.T) {
	nodes, skipped := homesOf(t, "two-by-96")
	require.Equal(t, map[string]int{"llc first": 0, "llc third": 4, "remote-32 first": 0, "remote-32 second": 4, "remote-32 third": 1}, nodes)
	require.Equal(t, map[string]string{"llc second": "both CPUs have their memory on node 0, as with home=first"}, skipped)

	nodes, skipped = homesOf(t, "two-socket")
	require.Equal(t, map[string]int{"llc first": 1, "llc third": 0, "remote-21 first": 0, "remote-21 second": 1}, nodes)
	require.Equal(t, "no other node has memory to use", skipped["remote-21 third"])

	nodes, _ = homesOf(t, "memoryless")
	require.Len(t, nodes, 5, "nodes without memory have that of the nearest one: %v", nodes)

	nodes, skipped = homesOf(t, "hosts/vm-2cpu")
	require.Len(t, nodes, 1, "one node has all memory")
	require.Len(t, skipped, 2)
}

// A host with one node has no homes to compare, and its default plan says so. A host that does not describe itself
// counts as a host with one node.
func TestHomesOfOneNode(t *testing.T) {
	_, cells := defaultPlan(t, topotest.File("hosts/vm-2cpu.tree"))
	n := 0
	for _, c := range cells {
		if c.Home != "" {
			n++
			require.NotEmpty(t, c.Skip, c.Key())
		}
	}
	require.Positive(t, n)
	o := testOptions()
	cells, err := Cells(o, "home")
	require.NoError(t, err)
	for _, c := range cells {
		require.Equal(t, c.Home == bench.HomeFirst, c.Skip == "", "%s: %s", c.Key(), c.Skip)
	}
	o.Homes = []string{"moon"}
	require.ErrorContains(t, o.checkHomes(), "first, second or third")
}

// A home may be a node without CPUs, but never a node without memory.
func TestHomesWithoutMemory(t *testing.T) {
	o := &Options{Topology: memTestHost(), CPUs: []int{0, 1, 2, 3, 4}}
	for _, c := range []struct {
		place string
		cpus  []int
		home  string
		node  int
		why   string
	}{
		{"0+1", []int{0, 1}, bench.HomeFirst, 0, ""},
		{"0+1", []int{0, 1}, bench.HomeThird, 1, ""},
		{"0+2", []int{0, 2}, bench.HomeThird, 3, ""},
		{"0+4", []int{0, 4}, bench.HomeSecond, 0, "node 2 of its CPUs has no memory to use"},
		{"any", nil, bench.HomeFirst, 0, "a home needs processes with a CPU each"},
	} {
		cell := &bench.Cell{Scenario: bench.ScenarioByName("home"), Place: c.place, CPUs: c.cpus, Procs: 2, Threads: 1, Home: c.home}
		require.Equal(t, c.why, o.settleHome(cell), c)
		if c.why == "" {
			require.Equal(t, c.node, cell.HomeNode, c)
		}
	}
}

//go:build linux

package plan

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// streamsOf returns the stream cells of a recorded host.
func streamsOf(t *testing.T, file string, suite bool) (*Options, []*bench.Cell) {
	t.Helper()
	o := &Options{Recording: file, Time: time.Millisecond, Count: 1, Kills: 1, Timeout: time.Second, Gap: UsualGap}
	require.NoError(t, o.Complete(nil, nil))
	o.Suite = suite
	cells, err := Cells(o, "stream")
	require.NoError(t, err)
	return o, cells
}

// TestStreamsOfALargeHost checks that streams run on the cores of one node, or of all nodes, with a core for each
// thread. The memory lies on the nodes that the parameters of the cell require.
func TestStreamsOfALargeHost(t *testing.T) {
	o, cells := streamsOf(t, topotest.File("two-by-96.tree"), true)
	var seen []string
	for _, c := range cells {
		nodes, cores := map[int]bool{}, map[int]bool{}
		for slot := range c.Slots() {
			cpu, ok := o.Topology.CPU(c.CPUOf(slot, o.CPUs))
			require.True(t, ok)
			nodes[cpu.Node], cores[cpu.Core] = true, true
			if c.Stream.Data == bench.DataOwn {
				require.Equal(t, []int{cpu.Node}, c.Stream.Asked(slot))
			}
		}
		require.Len(t, cores, c.Slots(), c.Key())
		seen = append(seen, fmt.Sprintf("%s %d%% %d%% %d of %d nodes, %v", c.Stream.Data, c.Duty, c.Read, c.Threads-1, len(nodes), c.Stream.Policy.Nodes))
		require.LessOrEqual(t, c.StreamBytes(), int64(mostStreamed)<<20)
	}
	require.Equal(t, []string{
		"own 100% 100% 0 of 1 nodes, []", "own 100% 100% 1 of 1 nodes, []",
		"own 25% 100% 23 of 1 nodes, []", "own 50% 100% 23 of 1 nodes, []", "own 100% 100% 23 of 1 nodes, []", "own 100% 67% 23 of 1 nodes, []",
		"far 100% 100% 23 of 1 nodes, [4]",
		"own 100% 100% 191 of 8 nodes, []", "one 100% 100% 191 of 8 nodes, [0]", "spread 100% 100% 191 of 8 nodes, [0 1 2 3 4 5 6 7]",
	}, seen)
}

// Every recorded host has stream cells. Cells that all hosts have in common have the same keys. No cell uses a CPU
// or a node that the process may not use.
func TestStreamsOfEveryHost(t *testing.T) {
	for _, file := range recordings(t) {
		name := filepath.Base(file)
		o, cells := streamsOf(t, file, false)
		require.Contains(t, keys(cells), "stream/by=go/data=own/duty=100/prim=memory/read=100/streams=0", name)
		require.Contains(t, keys(cells), "stream/by=go/data=own/duty=100/prim=memory/read=100/streams=1", name)
		seen := map[string]bool{}
		for _, c := range cells {
			require.False(t, seen[c.Key()], "%s: %s twice", name, c.Key())
			seen[c.Key()] = true
			require.LessOrEqual(t, c.StreamBytes(), int64(mostStreamed)<<20, "%s: %s", name, c.Key())
			for slot := range c.Slots() {
				require.Contains(t, o.CPUs, c.CPUOf(slot, o.CPUs), "%s: %s", name, c.Key())
				for _, node := range c.Stream.Asked(slot) {
					n, ok := o.Topology.Node(node)
					require.True(t, ok && (o.Topology.HasMemory(n) || o.Topology.Nearest(node) < 0), "%s: %s: node %d", name, c.Key(), node)
				}
			}
		}
	}
}

// In a cgroup with a memory limit, cells use less memory. A host with one node has no other memory to compare.
func TestStreamsWithLittleMemory(t *testing.T) {
	o := &Options{Topology: topotest.Host(t, "two-socket"), CPUs: []int{0, 1, 2, 3}}
	o.Topology.Limits.Memory = 64 << 20
	for _, c := range streamCells(o) {
		require.LessOrEqual(t, c.StreamBytes(), int64(16<<20), c)
	}
	o = &Options{Topology: topotest.Host(t, "hosts/vm-2cpu"), CPUs: []int{0, 1}, Data: []string{bench.DataFar}}
	cells := streamCells(o)
	require.Len(t, cells, 1)
	require.Equal(t, "no other node has memory to use", cells[0].Stream.Missing)
	for want, o := range map[string]*Options{"want own, one, far or spread": {Data: []string{"here"}}, "--duty: 0": {Duty: []int{0}}, "--streams: 256": {Streams: []int{256}}} {
		require.ErrorContains(t, o.checkStream(), want)
	}
}

// Fences are measured with one to all cores, each of which is busy.
func TestFencesOfALargeHost(t *testing.T) {
	o := &Options{Recording: topotest.File("two-by-96.tree"), Time: time.Millisecond, Count: 1, Kills: 1, Timeout: time.Second, Gap: UsualGap}
	require.NoError(t, o.Complete(nil, nil))
	o.Suite = true
	cells, err := Cells(o, "fence")
	require.NoError(t, err)
	var counts []int
	for _, c := range cells {
		cores := map[int]bool{}
		for slot := range c.Slots() {
			cpu, _ := o.Topology.CPU(c.CPUOf(slot, o.CPUs))
			cores[cpu.Core] = true
		}
		require.Len(t, cores, c.Slots(), c.Key())
		counts = append(counts, c.Slots())
	}
	require.Equal(t, []int{1, 2, 4, 8, 16, 32, 64, 128, 192}, counts)
}

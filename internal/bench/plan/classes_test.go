//go:build linux

package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// defaultPlan returns the plan of a run without arguments on a recorded host.
func defaultPlan(t *testing.T, file string) (*Options, []*bench.Cell) {
	t.Helper()
	o := &Options{Recording: file, Time: DefaultSuite.Time, Warmup: DefaultSuite.Warmup, Count: DefaultSuite.Count, Kills: DefaultSuite.Kills,
		Gap: UsualGap, Timeout: time.Second, Seed: 1}
	require.NoError(t, o.Complete(nil, nil), file)
	cells, err := DefaultSuite.Plan(o, true)
	require.NoError(t, err)
	return o, cells
}

// recordings returns the recorded hosts of the tests, and those in SHMSYNC_TOPOLOGIES.
func recordings(t *testing.T) []string {
	files, err := filepath.Glob(topotest.File("*.tree"))
	require.NoError(t, err)
	hosts, err := filepath.Glob(topotest.File("hosts/*.tree"))
	require.NoError(t, err)
	require.Greater(t, len(hosts), 40)
	files = append(files, hosts...)
	if dir := os.Getenv("SHMSYNC_TOPOLOGIES"); dir != "" {
		more, err := filepath.Glob(filepath.Join(dir, "*.tree"))
		require.NoError(t, err)
		files = append(files, more...)
	}
	return files
}

// TestDefaultPlansOfRecordedHosts checks that the default plan of each recorded host covers all classes of its CPUs,
// and uses no CPU or node that the process may not use. A plan takes at most one minute on two CPUs, and three minutes
// on any other host.
func TestDefaultPlansOfRecordedHosts(t *testing.T) {
	for _, file := range recordings(t) {
		name := filepath.Base(file)
		o, cells := defaultPlan(t, file)
		limit := 3 * time.Minute
		if len(o.CPUs) <= 2 {
			limit = time.Minute
		}
		require.Less(t, ETA(Order(cells, o.Count, false, 0)), limit, name)
		require.Equal(t, Rounds, o.Count, "%s: rounds are never made fewer", name)
		places := map[string]map[string]bool{}
		for _, c := range cells {
			if places[c.Scenario.Name] == nil {
				places[c.Scenario.Name] = map[string]bool{}
			}
			places[c.Scenario.Name][c.Place] = true
			require.NotEqual(t, bench.PlaceCross, c.Place, "%s: %s means something else on each host", name, c.Key())
			for slot := range c.Slots() {
				if cpu := c.CPUOf(slot, o.CPUs); c.Skip == "" && cpu >= 0 {
					require.Contains(t, o.CPUs, cpu, "%s: %s", name, c.Key())
				}
			}
			if class := topology.Class(c.Place); class.Valid() && c.Skip == "" {
				require.Equal(t, class, o.Topology.Class(c.CPUOf(0, o.CPUs), c.CPUOf(c.Threads, o.CPUs)), "%s: %s", name, c.Key())
			}
			if c.Mem != nil {
				for _, node := range c.Mem.Asked() {
					_, ok := o.Topology.Node(node)
					require.True(t, ok, "%s: %s", name, c.Key())
				}
			}
		}
		for _, class := range o.Topology.ClassesOf(o.CPUs) {
			for _, scenario := range []string{"handoff", "wake", "lock", "readers", "queue", "matrix"} {
				require.True(t, places[scenario][string(class)], "%s: no cell of %s with the class %s", name, scenario, class)
			}
		}
		require.NotEmpty(t, places["mem"], name)
	}
}

// The default plan for a host with two packages of 96 cores says which CPUs represent which class, and how many
// workers contend.
func TestDefaultPlanOfALargeHost(t *testing.T) {
	o, cells := defaultPlan(t, topotest.File("two-by-96.tree"))
	pairs := map[string][]int{}
	workers := map[string]map[int]bool{}
	memory := map[string]bool{}
	for _, c := range cells {
		switch {
		case c.Scenario.Name == "handoff" && topology.Class(c.Place).Valid():
			pairs[c.Place] = []int{c.CPUOf(0, o.CPUs), c.CPUOf(1, o.CPUs)}
		case c.Scenario.Name == "lock" && c.Spreads():
			if workers[c.Place] == nil {
				workers[c.Place] = map[int]bool{}
			}
			workers[c.Place][c.Slots()] = true
			used := map[int]bool{}
			cores := map[int]bool{}
			for slot := range c.Slots() {
				cpu, _ := o.Topology.CPU(c.CPUOf(slot, o.CPUs))
				used[cpu.ID], cores[cpu.Core] = true, true
			}
			require.Len(t, used, c.Slots(), "a CPU for each worker")
			require.Len(t, cores, c.Slots(), "and a core")
		case c.Mem != nil:
			memory[c.Mem.PolicyName()] = true
		}
	}
	require.Equal(t, map[string][]int{
		"smt": {1, 193}, "llc": {8, 9}, "node": {8, 16}, "package-12": {8, 24}, "remote-32": {8, 96},
	}, pairs)
	for _, place := range []string{bench.PlacePack, bench.PlaceSpread} {
		for _, n := range []int{2, 4, 8, 16, 32, 64, 128, 192} {
			require.True(t, workers[place][n], "%s %d", place, n)
		}
	}
	for _, policy := range []string{"bind:0", "bind:1", "bind:4", "bind:7"} {
		require.True(t, memory[policy], "%s: local, of each distance, and of the last node", policy)
	}
}

// TestKeysMeanTheSameOnEachHost checks that the cells of a class have the same keys on two hosts that have this class.
func TestKeysMeanTheSameOnEachHost(t *testing.T) {
	keysOf := func(host string) (list []string) {
		_, cells := defaultPlan(t, topotest.File(host+".tree"))
		for _, c := range cells {
			if strings.Contains(c.Key(), "place=llc/") && c.Scenario.Name == "handoff" {
				list = append(list, c.Key())
			}
		}
		slices.Sort(list)
		return list
	}
	require.Equal(t, keysOf("two-by-96"), keysOf("eight"))
	require.NotEmpty(t, keysOf("eight"))
}

func TestWorkerCounts(t *testing.T) {
	require.Equal(t, [][2]int{{1, 1}, {2, 1}}, workerCounts(2))
	require.Equal(t, [][2]int{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {16, 1}, {16, 2}, {16, 4}, {16, 6}}, workerCounts(96))
	require.Equal(t, [][2]int{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {16, 1}, {16, 2}, {13, 4}}, workerCounts(52))
	require.Equal(t, [][2]int{{1, 1}}, workerCounts(1))
}

// TestStripesAreMeasuredWithAllCores checks that a suite measures stripes with as many workers as the host has cores,
// and with more keys for more workers. The best number of stripes depends on the number of workers.
func TestStripesAreMeasuredWithAllCores(t *testing.T) {
	for file, want := range map[string][]string{
		"hosts/vm-2cpu.tree":     {"procs=2 threads=1 keys=1", "procs=2 threads=1 keys=16", "procs=2 threads=1 keys=64"},
		"hosts/graviton3.tree":   {"procs=16 threads=4 keys=1", "procs=16 threads=4 keys=256", "procs=16 threads=4 keys=1024"},
		"hosts/xeon6242-2p.tree": {"procs=16 threads=2 keys=1", "procs=16 threads=2 keys=128", "procs=16 threads=2 keys=512"},
	} {
		_, cells := defaultPlan(t, topotest.File(file))
		var have []string
		for _, c := range cells {
			if c.Scenario.Name == "multi" && c.Subject.Name() == "shmsync:multilock" {
				have = append(have, fmt.Sprintf("procs=%d threads=%d keys=%d", c.Procs, c.Threads, c.Keys))
			}
		}
		require.Subset(t, have, want, file)
	}
}

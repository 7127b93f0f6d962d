//go:build linux

package plan

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// longPlan returns the plan of "suite --std" on a recorded host.
func longPlan(t *testing.T, file string) (*Options, []*bench.Cell) {
	t.Helper()
	o := &Options{Recording: file, Time: StdSuite.Time, Warmup: StdSuite.Warmup, Count: StdSuite.Count, Kills: StdSuite.Kills,
		Gap: UsualGap, Timeout: time.Second, Seed: 1}
	require.NoError(t, o.Complete(nil, nil), file)
	cells, err := StdSuite.Plan(o, true)
	require.NoError(t, err, file)
	return o, cells
}

// The long suite has a plan for each recorded host, even for one with 64 nodes. It takes ten minutes on two CPUs, and
// twenty minutes elsewhere. It covers all classes of CPUs.
func TestLongPlansOfRecordedHosts(t *testing.T) {
	for _, file := range recordings(t) {
		name := filepath.Base(file)
		o, cells := longPlan(t, file)
		limit := 20 * time.Minute
		if len(o.CPUs) <= smallHost {
			limit = 10 * time.Minute
		}
		require.Less(t, ETA(Order(cells, o.Count, false, 0)), limit, name)
		covered := map[string]bool{}
		for _, c := range cells {
			covered[c.Scenario.Name+" "+c.Place] = true
		}
		for _, class := range o.Topology.ClassesOf(o.CPUs) {
			for _, scenario := range []string{"handoff", "wake", "lock", "readers", "queue", "matrix"} {
				require.True(t, covered[scenario+" "+string(class)], "%s: no cell of %s with the class %s", name, scenario, class)
			}
		}
	}
}

// TestLongPlanOfManyNodes checks that a long suite, on a host with many nodes, measures memory from only a few nodes,
// but at each distance from the first node. The plan has a note about this.
func TestLongPlanOfManyNodes(t *testing.T) {
	o, cells := longPlan(t, topotest.File("hosts/altix-64n.tree"))
	from, distances := map[int]bool{}, map[int]bool{}
	for _, c := range cells {
		if c.Mem == nil {
			continue
		}
		from[c.Mem.Node] = true
		for _, node := range c.Mem.Policy.Nodes {
			if c.Mem.Node == 0 {
				distances[o.Topology.Distance(0, node)] = true
			}
		}
	}
	require.Len(t, from, mostMemory)
	all := map[int]bool{}
	for _, n := range o.Topology.Nodes {
		all[o.Topology.Distance(0, n.ID)] = true
	}
	require.Equal(t, all, distances)
	require.Contains(t, o.MemNote, "4 of 64 nodes")
}

func TestEvenly(t *testing.T) {
	require.Equal(t, []int{0, 1, 2}, evenly([]int{0, 1, 2}, 4))
	require.Equal(t, []int{0, 2, 4, 6}, evenly([]int{0, 1, 2, 3, 4, 5, 6}, 4))
}

// TestSuitesWithinABudget checks that a suite uses up the time budget of the user by further rounds of the cells on
// which advice rests. Even with a short budget, it has as many rounds as advice needs.
func TestSuitesWithinABudget(t *testing.T) {
	planned := func(file string, budget time.Duration) (*Options, time.Duration, int) {
		o := &Options{Recording: topotest.File(file), Time: DefaultSuite.Time, Warmup: DefaultSuite.Warmup, Count: DefaultSuite.Count, Kills: DefaultSuite.Kills,
			Gap: UsualGap, Timeout: time.Second, Seed: 1}
		require.NoError(t, o.Complete(nil, nil))
		p := DefaultSuite.Within(budget)
		cells, err := p.Plan(o, true)
		require.NoError(t, err)
		require.Equal(t, budget, p.LimitOf(o))
		return o, ETA(Order(cells, o.Count, false, 0)), len(cells)
	}
	for _, file := range []string{"hosts/vm-2cpu.tree", "two-by-96.tree"} {
		o, eta, _ := planned(file, 20*time.Minute)
		require.Greater(t, o.Count, 2*Rounds, file)
		require.Equal(t, DefaultSuite.Time, o.Time, "rounds are not shortened")
		require.Empty(t, o.Dropped)
		require.Less(t, eta, 20*time.Minute, file)
		require.Greater(t, eta, 15*time.Minute, "the budget of %s is used", file)
		o, _, _ = planned(file, 10*time.Second)
		require.Equal(t, Rounds, o.Count, file)
		require.Less(t, o.Time, DefaultSuite.Time, file)
	}
}

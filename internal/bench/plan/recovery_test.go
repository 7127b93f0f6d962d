//go:build linux

package plan

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// kills returns how many kills of a subject still count if other programs disturb one round of a plan. The kills of a
// disturbed round do not count.
func kills(o *Options, cells []*bench.Cell, subject string) (n int) {
	for _, c := range cells {
		if c.Scenario.Name == "crash" && c.Subject.Name() == subject {
			rounds := o.Count
			if c.MaxReps > 0 {
				rounds = min(rounds, c.MaxReps)
			}
			n = max(n, (rounds-1)*c.N)
		}
	}
	return n
}

// The default plan kills so many owners of the library's lock, and of a robust mutex in C, that the p99 of the
// recovery time has an interval. If a host is too slow for that, the plan says so. The long suite always has enough
// time.
func TestPlansHaveKillsForATail(t *testing.T) {
	least := stats.LeastSamples(RecoveryQuantile)
	short := 0
	all := recordings(t)
	for _, file := range all {
		name := filepath.Base(file)
		o, cells := defaultPlan(t, file)
		for _, subject := range []string{"shmsync:mutex", "c:robust"} {
			n := kills(o, cells, subject)
			require.Positive(t, n, name)
			if n >= least {
				require.Empty(t, o.RecoveryNote(cells), name)
				continue
			}
			short++
			require.Contains(t, o.RecoveryNote(cells), "shmbench crash --kills", name)
		}
		o, cells = longPlan(t, file)
		require.GreaterOrEqual(t, kills(o, cells, "shmsync:mutex"), least, name)
	}
	require.Less(t, short, len(all)/4, "hosts without time")
	o, cells := defaultPlan(t, topotest.File("hosts/vm-2cpu.tree"))
	require.GreaterOrEqual(t, kills(o, cells, "shmsync:mutex"), least)
	require.NotContains(t, o.Dropped, "multi", "recovery takes the time of repetitions that decide nothing, not that of decisions")
}

// All crash cells of a plan can be compared with each other, because their repetitions have the same number of kills.
func TestCrashCellsOfAPlanAreComparable(t *testing.T) {
	for _, host := range []string{"hosts/vm-2cpu", "hosts/kunpeng920-2p4n", "hosts/graviton3"} {
		_, cells := defaultPlan(t, topotest.File(host+".tree"))
		groups := map[string]bool{}
		for _, c := range cells {
			if c.Scenario.Name == "crash" {
				groups[c.Group()] = true
			}
		}
		require.Len(t, groups, 1, host)
	}
}

// The shortest suite says that it has too few kills.
func TestQuickPlanSaysThatKillsAreFew(t *testing.T) {
	o := &Options{Recording: topotest.File("hosts/vm-2cpu.tree"), Time: QuickSuite.Time, Warmup: QuickSuite.Warmup, Count: QuickSuite.Count,
		Kills: QuickSuite.Kills, Gap: UsualGap, Timeout: 1, Seed: 1}
	require.NoError(t, o.Complete(nil, nil))
	cells, err := QuickSuite.Plan(o, true)
	require.NoError(t, err)
	require.Regexp(t, `^recovery: \d+ kills are too few for p99, which needs \d+: shmbench crash --kills \d+$`, o.RecoveryNote(cells))
	require.Empty(t, o.RecoveryNote(nil), "a plan without kills")
}

// A suite leaves out a scenario on which advice rests only after it has reduced everything else to one repetition.
func TestPlansDropDecisionsLast(t *testing.T) {
	dropped := 0
	for _, file := range []string{"hosts/vm-2cpu.tree", "hosts/kunpeng920-2p4n.tree", "two-by-96.tree"} {
		for budget := 5 * time.Second; budget < 2*time.Minute; budget = budget * 5 / 4 {
			o := &Options{Recording: topotest.File(file), Time: DefaultSuite.Time, Warmup: DefaultSuite.Warmup, Count: DefaultSuite.Count,
				Kills: DefaultSuite.Kills, Gap: UsualGap, Timeout: time.Second, Seed: 1}
			require.NoError(t, o.Complete(nil, nil))
			p := DefaultSuite.Within(budget)
			all, err := p.Plan(o, false)
			require.NoError(t, err)
			advises := map[string]bool{}
			for _, c := range all {
				advises[c.Scenario.Name] = advises[c.Scenario.Name] || decisive(o, c)
			}
			cells, err := p.Plan(o, true)
			require.NoError(t, err)
			if !slices.ContainsFunc(o.Dropped, func(name string) bool { return advises[name] }) {
				continue
			}
			dropped++
			for _, c := range cells {
				require.False(t, c.Scenario.Name != "crash" && c.MaxReps > 1, "%s, %s: %v was dropped before %s", file, budget, o.Dropped, c.Key())
			}
		}
	}
	require.NotZero(t, dropped, "no budget was so short")
}

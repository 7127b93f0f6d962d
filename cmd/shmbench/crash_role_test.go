//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// Waiters and readers may die: who is next gets the lock, and nothing is left of them.
func TestCrashRoles(t *testing.T) {
	code, out, errs := shmbench(t, "crash", "--role=holder,waiter,reader", "--kills=12", "--place=any", "--count=1", "--cc=none",
		"--prim=shmsync:mutex,shmsync:rwmutex,go:flock", "--format=json")
	require.Zero(t, code, errs)
	seen := map[string]int{}
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, statusOK, c.Status, c.Key)
		require.Equal(t, []float64{12}, c.values("n"), c.Key)
		require.Positive(t, median(c.values("max-ns")), c.Key)
		seen[c.Subject+" "+c.Params["role"]]++
		if c.Params["role"] == "" {
			require.Empty(t, c.values("passed-p50-ns"), c.Key)
		}
	}
	require.Equal(t, map[string]int{
		"shmsync:mutex ": 1, "shmsync:rwmutex ": 1, "go:flock ": 1,
		"shmsync:mutex waiter": 1, "shmsync:rwmutex waiter": 1, "shmsync:rwmutex reader": 1,
	}, seen)
}

// What is left of the dead is found.
func TestLeavingsAreFound(t *testing.T) {
	f, err := newArena(&cell{Scenario: scenarioByName("crash")})
	require.NoError(t, err)
	p, err := newPage(2)
	require.NoError(t, err)
	th := &thread{worker: &worker{page: p, subject: &subject{By: libBy}, segment: f}}
	th.slot, _ = p.slot(0)
	dead := &buried{t: th, patience: 1}
	dead.look(0)
	require.Zero(t, th.slot.violations)
	dead.look(1)
	require.EqualValues(t, 1, th.slot.violations, "nobody has died")
	a, err := joinArena(th.worker)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, p.close())

	dead = &buried{}
	require.Error(t, dead.excess(1, arena.AllocStats{Objects: 1, Claimed: 1}))
	require.NoError(t, dead.excess(1, arena.AllocStats{Objects: 1, Nodes: 2}))
	require.NoError(t, dead.excess(9, arena.AllocStats{Objects: 1, Nodes: 3, HubNodes: 2}))
	for _, s := range []arena.AllocStats{{Objects: 2}, {Nodes: 3}, {Raw: 1}, {Claimed: 1}} {
		require.Error(t, dead.excess(9, s), "%+v", s)
	}
}

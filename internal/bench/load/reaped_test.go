//go:build linux

package load

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/subjects"
)

// TestLeavingsAreFound checks that look reports a missing reap, and that excess reports what dead processes have left
// in the arena.
func TestLeavingsAreFound(t *testing.T) {
	s, err := subjects.Find(bench.Library + ":mutex")
	require.NoError(t, err)
	f, err := s.Segment(&bench.Cell{Scenario: bench.ScenarioByName("crash")})
	require.NoError(t, err)
	p, err := control.NewPage(2)
	require.NoError(t, err)
	th := &thread{Worker: &bench.Worker{Page: p, Subject: &bench.Subject{By: bench.Library}, Segment: f}}
	th.slot, _ = p.Slot(0)
	dead := &reaped{t: th, waitLimit: 1}
	dead.look(0)
	require.Zero(t, th.slot.Violations)
	dead.look(1)
	require.EqualValues(t, 1, th.slot.Violations, "nobody has died")
	a, err := subjects.JoinArena(th.Worker)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, p.Close())

	dead = &reaped{}
	require.Error(t, dead.excess(1, arena.AllocStats{Objects: 1, Claimed: 1}))
	require.NoError(t, dead.excess(1, arena.AllocStats{Objects: 1, Nodes: 2}))
	require.NoError(t, dead.excess(9, arena.AllocStats{Objects: 1, Nodes: 3, PollerNodes: 2}))
	for _, s := range []arena.AllocStats{{Objects: 2}, {Nodes: 3}, {Raw: 1}, {Claimed: 1}} {
		require.Error(t, dead.excess(9, s), "%+v", s)
	}
}

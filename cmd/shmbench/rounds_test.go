//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/engine"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/plan"
)

// A round that other programs disturbed is marked as dirty, and one more round is made. Cells that take part in one
// round only are not repeated. A run ends even if all its rounds are dirty.
func TestDirtyRoundsAreRepeated(t *testing.T) {
	for _, c := range []struct {
		dirty       []bool // whether each round is dirty; the last value is for all later rounds, too
		made, marks int
		once        bool // one of the cells takes part in one round only
	}{
		{[]bool{false}, 3, 0, false},
		{[]bool{false, true, false}, 4, 1, false},
		{[]bool{false, false, true, true, false}, 5, 2, false},
		{[]bool{true}, 6, 6, false},
		{[]bool{false, true, false}, 4, 1, true},
	} {
		s := &session{common: &common{Timeout: time.Minute, Seed: 1, Prim: []string{"go:flock", "go:eventfd"}, CC: "none", Count: 3, Time: time.Millisecond, Place: []string{bench.PlaceAny}}}
		o, err := s.common.options(plan.DefaultSuite.Defaults)
		require.NoError(t, err)
		cells, err := plan.Cells(o, "uncontended")
		require.NoError(t, err)
		if c.once {
			cells[0].MaxReps = 1
		}
		var now host.Disturbance
		rounds := 0
		probe := func() host.Disturbance {
			if rounds > 0 && c.dirty[min(rounds, len(c.dirty))-1] {
				now.Busy += 5000
			}
			rounds++
			now.Total += 10000
			return now
		}
		e := &engine.Engine{CPUs: o.CPUs, Timeout: o.Timeout, Probe: probe}
		results := e.Run(t.Context(), cells, plan.Order(cells, o.Count, true, 1))
		require.Equal(t, c.made, e.Made, "%+v", c)
		require.Equal(t, c.marks, e.Dirty, "%+v", c)
		for i, r := range results {
			if c.once && i == 0 {
				require.Len(t, r.Reps, 1)
				continue
			}
			require.Len(t, r.Reps, c.made, "%+v", c)
			for k, rep := range r.Reps {
				require.Equal(t, c.dirty[min(k, len(c.dirty)-1)], rep.Dirty, "%+v, round %d", c, k)
			}
		}
	}
}

// The results so far are saved at the beginning and after each round.
func TestResultsAreSavedAfterEachRound(t *testing.T) {
	s := &session{common: &common{Timeout: time.Minute, Seed: 1, Prim: []string{"go:flock", "go:eventfd"}, CC: "none", Count: 3, Time: time.Millisecond, Place: []string{bench.PlaceAny}}}
	o, err := s.common.options(plan.DefaultSuite.Defaults)
	require.NoError(t, err)
	cells, err := plan.Cells(o, "uncontended")
	require.NoError(t, err)
	for every, want := range map[time.Duration][]int{0: {0, 1, 2, 3}, time.Hour: {0}} {
		var saved []int
		e := &engine.Engine{CPUs: o.CPUs, Timeout: o.Timeout, SaveEvery: every, Save: func(results []*bench.Result) {
			for _, r := range results {
				require.Len(t, r.Reps, len(results[0].Reps), "a whole round")
			}
			saved = append(saved, len(results[0].Reps))
		}}
		e.Run(t.Context(), cells, plan.Order(cells, o.Count, true, 1))
		require.Equal(t, want, saved)
	}
}

// After the time is over, no dirty round is repeated.
func TestDirtyRoundsEndInTime(t *testing.T) {
	s := &session{common: &common{Timeout: time.Minute, Seed: 1, Prim: []string{"go:flock"}, CC: "none", Count: 1, Time: time.Millisecond, Place: []string{bench.PlaceAny}}}
	o, err := s.common.options(plan.DefaultSuite.Defaults)
	require.NoError(t, err)
	cells, err := plan.Cells(o, "uncontended")
	require.NoError(t, err)
	var now host.Disturbance
	e := &engine.Engine{CPUs: o.CPUs, Timeout: o.Timeout, Until: time.Now(), Probe: func() host.Disturbance {
		now.Busy += 5000
		now.Total += 10000
		return now
	}}
	e.Run(t.Context(), cells, plan.Order(cells, o.Count, true, 1))
	require.Equal(t, 1, e.Made)
	require.Equal(t, 1, e.Dirty)
}

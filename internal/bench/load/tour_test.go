//go:build linux

package load

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
)

// TestPairsOfAClassAreJoined checks that the figure of a class is the median of its pairs, and that the repetition of
// the class fails if a pair failed.
func TestPairsOfAClassAreJoined(t *testing.T) {
	pair := func(p50 float64, status string) *bench.Repetition {
		return &bench.Repetition{Status: status, Reason: status, Workers: []bench.WorkerReport{{CPU: int(p50)}},
			Metrics: map[string]float64{"p50-ns": p50, "mean-ns": 2 * p50, "n": 10}}
	}
	all := joinPairs([]*bench.Repetition{pair(30, bench.StatusOK), pair(500, bench.StatusOK), pair(20, bench.StatusOK)})
	require.Equal(t, bench.StatusOK, all.Status)
	require.Equal(t, map[string]float64{"p50-ns": 30, "mean-ns": 60, "n": 30, "visited-pairs": 3, "least-pair-ns": 20, "most-pair-ns": 500}, all.Metrics)
	require.Equal(t, 30, all.Workers[0].CPU)
	all = joinPairs([]*bench.Repetition{pair(30, bench.StatusOK), pair(1, bench.StatusViolation)})
	require.Equal(t, bench.StatusViolation, all.Status)
	one := pair(7, bench.StatusOK)
	require.Same(t, one, joinPairs([]*bench.Repetition{one}))
}

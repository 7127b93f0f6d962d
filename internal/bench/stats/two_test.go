//go:build linux

package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLeastP(t *testing.T) {
	require.InDelta(t, 0.1, leastP(3, 3), 1e-9)
	require.InDelta(t, 2/70.0, leastP(4, 4), 1e-9)
	require.Equal(t, 1.0, leastP(1, 1))
	require.Equal(t, 4, EnoughFor(0.05))
	s := Compare([]float64{1, 2, 3}, []float64{100, 200, 300})
	require.InDelta(t, s.LeastP, s.P, 1e-9)
	require.False(t, s.Sure())
	require.Equal(t, 1.0, Compare([]float64{5, 5, 5, 5, 5}, []float64{5, 5, 5, 5, 5}).P)
	require.Zero(t, Compare([]float64{0, 1, 2, 3}, []float64{1, 2, 3, 4}).Ratio)
}

// TestShiftInterval checks that the interval contains the true ratio in at least 93 of 100 samples.
func TestShiftInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	for _, n := range []int{4, 10, 60} {
		held, rounds := 0, 400
		for range rounds {
			var x, y []float64
			for range n {
				x, y = append(x, math.Exp(0.1*rng.NormFloat64())), append(y, 1.3*math.Exp(0.1*rng.NormFloat64()))
			}
			s := Compare(x, y)
			require.True(t, s.Sure())
			require.LessOrEqual(t, s.Ratio.Lo, s.Ratio.Center)
			if s.Ratio.Lo <= 1.3 && 1.3 <= s.Ratio.Hi {
				held++
			}
		}
		require.GreaterOrEqual(t, held, rounds*93/100, "%d values", n)
	}
}

// The corrections give the same values as in the papers of their authors.
func TestCorrections(t *testing.T) {
	ps := []float64{0.01, 0.04, 0.03, 0.5}
	require.InDeltaSlice(t, []float64{0.04, 0.04 * 4 / 3, 0.04 * 4 / 3, 0.5}, FalseDiscovery(ps), 1e-12)
	require.InDeltaSlice(t, []float64{0.04, 0.09, 0.09, 0.5}, Holm(ps), 1e-12)
	require.Empty(t, FalseDiscovery(nil))
	require.Empty(t, Holm(nil))
}

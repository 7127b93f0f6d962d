//go:build linux

package stats

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOrderIntervalContainsTheQuantile checks that the interval contains the true quantile in about 19 of 20 tries,
// even with the least number of samples.
func TestOrderIntervalContainsTheQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, q := range []float64{0.5, 0.9, 0.99} {
		for _, n := range []int{LeastSamples(q), 3 * LeastSamples(q)} {
			const tries = 400
			truth := q * 1e6
			in := 0
			for range tries {
				counts := make([]uint64, HistBuckets)
				for range n {
					Record(counts, rng.Int64N(1e6))
				}
				v, err := OrderInterval(NewHist(counts), q)
				require.NoError(t, err)
				require.LessOrEqual(t, v.Lo, v.Center)
				require.LessOrEqual(t, v.Center, v.Hi)
				if v.Lo <= truth && truth <= v.Hi {
					in++
				}
			}
			require.Greater(t, float64(in)/tries, Confidence-0.035, "q %v, n %d", q, n)
		}
	}
}

// TestOrderIntervalNeedsSamples checks that OrderInterval returns an error with fewer than LeastSamples samples. Then
// even the largest sample may be below the true quantile.
func TestOrderIntervalNeedsSamples(t *testing.T) {
	least := LeastSamples(0.99)
	counts := make([]uint64, HistBuckets)
	for i := range least - 1 {
		Record(counts, int64(i))
	}
	_, err := OrderInterval(NewHist(counts), 0.99)
	require.ErrorContains(t, err, "are too few")
	Record(counts, 5000)
	v, err := OrderInterval(NewHist(counts), 0.99)
	require.NoError(t, err)
	require.Equal(t, least, v.N)
	require.Equal(t, KindOrder, v.Kind)
	_, err = OrderInterval(NewHist(make([]uint64, HistBuckets)), 0.5)
	require.Error(t, err)
}

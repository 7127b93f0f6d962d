//go:build linux

package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQuantilesAgainstSorted compares quantiles of histograms with quantiles of the sorted samples. They may differ by
// one part in a thousand.
func TestQuantilesAgainstSorted(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	draws := map[string]func() int64{
		"uniform":     func() int64 { return rng.Int64N(5000) },
		"exponential": func() int64 { return int64(rng.ExpFloat64() * 40_000) },
		"lognormal":   func() int64 { return int64(math.Exp(rng.NormFloat64()*3 + 10)) },
		"two modes":   func() int64 { return 300 + rng.Int64N(2)*60_000 + rng.Int64N(50) },
	}
	for name, draw := range draws {
		t.Run(name, func(t *testing.T) {
			const n = 200_000
			parts := [][]uint64{make([]uint64, HistBuckets), make([]uint64, HistBuckets)}
			values := make([]int64, n)
			for i := range values {
				values[i] = min(draw(), histMax)
				Record(parts[i%2], values[i])
			}
			slices.Sort(values)
			h := NewHist(parts...)
			require.EqualValues(t, n, h.TotalCount())
			for _, q := range Quantiles {
				want := float64(values[int(math.Ceil(q.Q*n))-1])
				got, ok := Quantile(h, q.Q, TailMin)
				require.True(t, ok, q.Name)
				require.InEpsilon(t, want+1, got+1, 0.001, q.Name)
			}
		})
	}
}

func TestHistIndexCoversItsRange(t *testing.T) {
	require.Equal(t, 0, HistIndex(-5))
	require.Equal(t, 0, HistIndex(0))
	require.Equal(t, HistBuckets-1, HistIndex(histMax))
	require.Equal(t, HistBuckets-1, HistIndex(math.MaxInt64))
	last := -1
	for v := int64(0); v < 1<<16; v++ {
		i := HistIndex(v)
		require.True(t, i == last || i == last+1, "value %d is in bucket %d after %d", v, i, last)
		last = i
	}
}

func TestMergeIsAssociative(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	parts := make([][]uint64, 3)
	for i := range parts {
		parts[i] = make([]uint64, HistBuckets)
		for range 1000 {
			Record(parts[i], rng.Int64N(1<<30))
		}
	}
	a, b, c := NewHist(parts[0]), NewHist(parts[1]), NewHist(parts[2])
	a.Merge(b)
	a.Merge(c)
	b.Merge(c)
	left := NewHist(parts[0])
	left.Merge(b)
	require.True(t, a.Equals(left))
	require.True(t, a.Equals(NewHist(parts...)))
}

func TestQuantilesNeedATail(t *testing.T) {
	counts := make([]uint64, HistBuckets)
	for v := range int64(100) {
		Record(counts, v)
	}
	h := NewHist(counts)
	_, ok := Quantile(h, 0.90, TailMin)
	require.True(t, ok)
	_, ok = Quantile(h, 0.99, TailMin)
	require.False(t, ok)
}

func TestRatioIntervals(t *testing.T) {
	many, err := RatioInterval([]float64{.9, 1, 1.1, 1.2, .8, 1.05, .95, 1.15, .85, 1})
	require.NoError(t, err)
	require.Equal(t, KindRank, many.Kind)
	require.InDelta(t, 1, many.Center, 0.01)
	require.Less(t, many.Lo, many.Center)
	require.Greater(t, many.Hi, many.Center)
	few, err := RatioInterval([]float64{2, 1, 3})
	require.NoError(t, err)
	require.Equal(t, Interval{2, 1, 3, 3, KindRange}, few)
	_, err = RatioInterval(nil)
	require.Error(t, err)
}

func TestQuantileRatio(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	slow, fast := make([]uint64, HistBuckets), make([]uint64, HistBuckets)
	for range 400 {
		Record(slow, 2_000_000+rng.Int64N(200_000))
		Record(fast, 1_000_000+rng.Int64N(100_000))
	}
	q, err := QuantileRatio(NewHist(slow), NewHist(fast), 0.99, 1)
	require.NoError(t, err)
	require.InDelta(t, 2, q.Center, 0.05)
	require.LessOrEqual(t, q.Lo, q.Center)
	require.GreaterOrEqual(t, q.Hi, q.Center)
	require.Less(t, q.Hi-q.Lo, 0.2)
	_, err = QuantileRatio(NewHist(slow), NewHist(), 0.99, 1)
	require.Error(t, err)
}

//go:build linux

package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQuantilesAgainstSorted compares quantiles with those of the sorted
// samples: histograms may be off by one part in a thousand.
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
			parts := [][]uint64{make([]uint64, histBuckets), make([]uint64, histBuckets)}
			values := make([]int64, n)
			for i := range values {
				values[i] = min(draw(), histMax)
				record(parts[i%2], values[i])
			}
			slices.Sort(values)
			h := newHist(parts...)
			require.EqualValues(t, n, h.TotalCount())
			for _, q := range quantiles {
				want := float64(values[int(math.Ceil(q.q*n))-1])
				got, ok := quantile(h, q.q, tailMin)
				require.True(t, ok, q.name)
				require.InEpsilon(t, want+1, got+1, 0.001, q.name)
			}
		})
	}
}

func TestHistIndexCoversItsRange(t *testing.T) {
	require.Equal(t, 0, histIndex(-5))
	require.Equal(t, 0, histIndex(0))
	require.Equal(t, histBuckets-1, histIndex(histMax))
	require.Equal(t, histBuckets-1, histIndex(math.MaxInt64))
	last := -1
	for v := int64(0); v < 1<<16; v++ {
		i := histIndex(v)
		require.True(t, i == last || i == last+1, "value %d is in bucket %d after %d", v, i, last)
		last = i
	}
}

func TestMergeIsAssociative(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	parts := make([][]uint64, 3)
	for i := range parts {
		parts[i] = make([]uint64, histBuckets)
		for range 1000 {
			record(parts[i], rng.Int64N(1<<30))
		}
	}
	a, b, c := newHist(parts[0]), newHist(parts[1]), newHist(parts[2])
	a.Merge(b)
	a.Merge(c)
	b.Merge(c)
	left := newHist(parts[0])
	left.Merge(b)
	require.True(t, a.Equals(left))
	require.True(t, a.Equals(newHist(parts...)))
}

func TestQuantilesNeedATail(t *testing.T) {
	counts := make([]uint64, histBuckets)
	for v := range int64(100) {
		record(counts, v)
	}
	h := newHist(counts)
	_, ok := quantile(h, 0.90, tailMin)
	require.True(t, ok)
	_, ok = quantile(h, 0.99, tailMin)
	require.False(t, ok)
}

func TestFairness(t *testing.T) {
	jain, smallest := fairness([]float64{5, 5, 5, 5})
	require.Equal(t, 1.0, jain)
	require.Equal(t, 1.0, smallest)
	jain, smallest = fairness([]float64{8, 0, 0, 0})
	require.Equal(t, 0.25, jain)
	require.Zero(t, smallest)
	jain, _ = fairness([]float64{0, 0})
	require.Zero(t, jain)
}

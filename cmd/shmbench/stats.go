//go:build linux

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchmath"
)

const (
	confidence = 0.95
	resamples  = 2000
)

// interval is a value with the range it is known to lie in.
type interval struct {
	Center float64 `json:"center"`
	Lo     float64 `json:"lo"`
	Hi     float64 `json:"hi"`
	N      int     `json:"n"`
	Kind   string  `json:"kind"` // how Lo and Hi were found
}

// Kinds of interval.
const (
	kindRank      = "rank 95%"
	kindBootstrap = "bootstrap 95%"
	kindRange     = "min-max"
)

func median(vs []float64) float64 {
	s := slices.Sorted(slices.Values(vs))
	n := len(s)
	if n == 0 {
		return math.NaN()
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

// summarize gives the median of the repetitions and their range.
func summarize(vs []float64) interval {
	return interval{median(vs), slices.Min(vs), slices.Max(vs), len(vs), kindRange}
}

// ratios pairs two results round by round: the cells of one round ran within
// moments of each other, so that what drifts cancels.
func ratios(a, b *result, metric string) []float64 {
	var rs []float64
	for i := range min(len(a.Reps), len(b.Reps)) {
		x, okx := a.Reps[i].Metrics[metric]
		y, oky := b.Reps[i].Metrics[metric]
		if okx && oky && y != 0 && a.Reps[i].Status == statusOK && b.Reps[i].Status == statusOK {
			rs = append(rs, x/y)
		}
	}
	return rs
}

// ratioInterval is the median of a ratio's repetitions with its rank interval,
// or with their range while there are too few for one.
func ratioInterval(rs []float64) (interval, error) {
	if len(rs) == 0 {
		return interval{}, fmt.Errorf("no repetition has both")
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(rs), &benchmath.DefaultThresholds), confidence)
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		return summarize(rs), nil
	}
	return interval{s.Center, s.Lo, s.Hi, len(rs), kindRank}, nil
}

// quantileRatio compares a quantile of two pooled histograms, for tails that
// one repetition is too short for. The interval is a percentile bootstrap.
func quantileRatio(a, b *hdrhistogram.Histogram, q float64, seed uint64) (interval, error) {
	x, okx := quantile(a, q, tailMinCrash)
	y, oky := quantile(b, q, tailMinCrash)
	if !okx || !oky || y == 0 {
		return interval{}, fmt.Errorf("too few samples for a quantile of %v", q)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	sa, sb := newResampler(a), newResampler(b)
	rs := make([]float64, resamples)
	for i := range rs {
		rs[i] = sa.quantile(rng, q) / sb.quantile(rng, q)
	}
	lo, hi := middle(rs)
	return interval{Center: x / y, Lo: lo, Hi: hi, N: int(min(a.TotalCount(), b.TotalCount())), Kind: kindBootstrap}, nil
}

// quantileInterval gives a quantile of a pooled histogram, with the interval of
// a percentile bootstrap.
func quantileInterval(h *hdrhistogram.Histogram, q float64, seed uint64) (interval, error) {
	x, ok := quantile(h, q, tailMinCrash)
	if !ok {
		return interval{}, fmt.Errorf("too few samples for a quantile of %v", q)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newResampler(h)
	vs := make([]float64, resamples)
	for i := range vs {
		vs[i] = s.quantile(rng, q)
	}
	lo, hi := middle(vs)
	return interval{Center: x, Lo: lo, Hi: hi, N: int(h.TotalCount()), Kind: kindBootstrap}, nil
}

// middle gives the bounds of the part of the resampled values that the
// confidence asks for.
func middle(vs []float64) (lo, hi float64) {
	slices.Sort(vs)
	tail := (1 - confidence) / 2
	return vs[int(tail*resamples)], vs[int((1-tail)*resamples)-1]
}

// resampler draws samples with replacement from a histogram.
type resampler []float64 // a value for each recorded sample

func newResampler(h *hdrhistogram.Histogram) resampler {
	values := make(resampler, 0, h.TotalCount())
	for _, b := range h.Distribution() {
		for range b.Count {
			values = append(values, float64(b.To))
		}
	}
	return values
}

// quantile gives the q-quantile of one sample of the histogram's own size.
// Values are ascending, so that the quantile of drawn indices is enough.
func (r resampler) quantile(rng *rand.Rand, q float64) float64 {
	drawn := make([]int, len(r))
	for i := range drawn {
		drawn[i] = rng.IntN(len(r))
	}
	slices.Sort(drawn)
	return r[drawn[max(int(math.Ceil(q*float64(len(r))))-1, 0)]]
}

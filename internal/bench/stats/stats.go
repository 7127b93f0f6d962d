//go:build linux

package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
	moremath "github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"
)

const (
	Confidence = 0.95 // confidence of the intervals
	resamples  = 2000
)

// Interval is an estimate of a value, with a range around the estimate. Kind says how the range was found.
type Interval struct {
	Center float64 `json:"center"`
	Lo     float64 `json:"lo"`
	Hi     float64 `json:"hi"`
	N      int     `json:"n"`
	Kind   string  `json:"kind"` // one of the kinds below
}

// These are the kinds of intervals, that is, the ways in which a range was found.
const (
	KindRank      = "rank 95%"
	KindBootstrap = "bootstrap 95%"
	KindRange     = "min-max"
	KindOrder     = "order 95%"
)

// Median returns the median, and NaN for an empty list.
func Median(vs []float64) float64 {
	s := slices.Sorted(slices.Values(vs))
	n := len(s)
	if n == 0 {
		return math.NaN()
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Summarize returns the median of vs, the values of several repetitions, with their range.
func Summarize(vs []float64) Interval {
	return Interval{Median(vs), slices.Min(vs), slices.Max(vs), len(vs), KindRange}
}

// RatioInterval returns the median of rs, which has one ratio for each repetition, with a rank interval. Such an
// interval needs no assumption about the distribution. If there are too few ratios for it, RatioInterval returns their
// range.
func RatioInterval(rs []float64) (Interval, error) {
	if len(rs) == 0 {
		return Interval{}, fmt.Errorf("no repetition has both")
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(rs), &benchmath.DefaultThresholds), Confidence)
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		return Summarize(rs), nil
	}
	return Interval{s.Center, s.Lo, s.Hi, len(rs), KindRank}, nil
}

// QuantileRatio returns the q-quantile of a divided by the q-quantile of b. Each histogram must have the samples of all
// repetitions, because one repetition has too few samples for a high quantile. The interval comes from a percentile
// bootstrap.
func QuantileRatio(a, b *hdrhistogram.Histogram, q float64, seed uint64) (Interval, error) {
	x, okx := Quantile(a, q, TailMinCrash)
	y, oky := Quantile(b, q, TailMinCrash)
	if !okx || !oky || y == 0 {
		return Interval{}, fmt.Errorf("too few samples for a quantile of %v", q)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	sa, sb := newResampler(a), newResampler(b)
	rs := make([]float64, resamples)
	for i := range rs {
		rs[i] = sa.quantile(rng, q) / sb.quantile(rng, q)
	}
	lo, hi := middle(rs)
	return Interval{Center: x / y, Lo: lo, Hi: hi, N: int(min(a.TotalCount(), b.TotalCount())), Kind: KindBootstrap}, nil
}

// QuantileInterval returns a quantile of a histogram that has the samples of all repetitions. The interval comes from a
// percentile bootstrap.
func QuantileInterval(h *hdrhistogram.Histogram, q float64, seed uint64) (Interval, error) {
	x, ok := Quantile(h, q, TailMinCrash)
	if !ok {
		return Interval{}, fmt.Errorf("too few samples for a quantile of %v", q)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newResampler(h)
	vs := make([]float64, resamples)
	for i := range vs {
		vs[i] = s.quantile(rng, q)
	}
	lo, hi := middle(vs)
	return Interval{Center: x, Lo: lo, Hi: hi, N: int(h.TotalCount()), Kind: KindBootstrap}, nil
}

// OrderInterval returns a quantile of a histogram that has the samples of all repetitions. Both ends of the interval
// are samples. The interval needs no assumption about their distribution. OrderInterval returns an error if there are
// fewer than LeastSamples(q) samples.
func OrderInterval(h *hdrhistogram.Histogram, q float64) (Interval, error) {
	n := int(h.TotalCount())
	ci := moremath.QuantileCI(n, q, Confidence)
	if ci.LoOrder < 1 || ci.HiOrder > n {
		return Interval{}, fmt.Errorf("%d samples are too few for a quantile of %v: it needs %d", n, q, LeastSamples(q))
	}
	values := newResampler(h)
	return Interval{Center: values[rank(q, n)], Lo: values[ci.LoOrder-1], Hi: values[ci.HiOrder-1], N: n, Kind: KindOrder}, nil
}

// LeastSamples returns the least number of samples with which OrderInterval finds an interval of the quantile q.
func LeastSamples(q float64) int {
	for n := 1; ; n++ {
		if ci := moremath.QuantileCI(n, q, Confidence); ci.LoOrder >= 1 && ci.HiOrder <= n {
			return n
		}
	}
}

// rank returns the index of the q-quantile in a list of n ascending values.
func rank(q float64, n int) int { return max(int(math.Ceil(q*float64(n)))-1, 0) }

// middle returns the bounds of the middle part of resampled values. This part has the share Confidence of the values.
func middle(vs []float64) (lo, hi float64) {
	slices.Sort(vs)
	tail := (1 - Confidence) / 2
	return vs[int(tail*resamples)], vs[int((1-tail)*resamples)-1]
}

// resampler draws samples with replacement from a histogram.
type resampler []float64 // the recorded samples, ascending

func newResampler(h *hdrhistogram.Histogram) resampler {
	values := make(resampler, 0, h.TotalCount())
	for _, b := range h.Distribution() {
		for range b.Count {
			values = append(values, float64(b.To))
		}
	}
	return values
}

// quantile draws as many samples as r has, with replacement, and returns their q-quantile. It draws only indices:
// because the values of r ascend, the q-quantile of the indices is the index of the q-quantile of the samples.
func (r resampler) quantile(rng *rand.Rand, q float64) float64 {
	drawn := make([]int, len(r))
	for i := range drawn {
		drawn[i] = rng.IntN(len(r))
	}
	slices.Sort(drawn)
	return r[drawn[rank(q, len(r))]]
}

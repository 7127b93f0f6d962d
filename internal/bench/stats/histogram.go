//go:build linux

package stats

import (
	"math/bits"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Workers and their parent share histograms in the control page. Such a histogram consists only of the counters of an
// HDR histogram with three significant digits and a range of 1 ns … 2^40 ns. Values below 2048 are exact. Above 2048,
// each power of two has 1024 buckets.
const (
	histSubBits = 11
	histHalf    = 1 << (histSubBits - 1)
	histMaxBits = 40
	histMax     = 1<<histMaxBits - 1
	HistBuckets = (histMaxBits - histSubBits + 2) * histHalf
	histDigits  = 3
)

// HistIndex returns the index of the bucket for v nanoseconds. A value that is out of range goes to the first or the
// last bucket.
func HistIndex(v int64) int {
	v = min(max(v, 0), histMax)
	shift := bits.Len64(uint64(v)|(1<<histSubBits-1)) - histSubBits
	return shift*histHalf + int(v>>shift)
}

// Record adds one value to the counters of a histogram. Only one thread may call it for the same counters.
func Record(counts []uint64, v int64) { counts[HistIndex(v)]++ }

// NewHist returns one histogram with the samples of the given counters, each of which one thread has recorded.
func NewHist(slots ...[]uint64) *hdrhistogram.Histogram {
	sum := make([]int64, HistBuckets)
	for _, counts := range slots {
		for i, n := range counts {
			sum[i] += int64(n)
		}
	}
	return hdrhistogram.Import(&hdrhistogram.Snapshot{
		LowestTrackableValue:  1,
		HighestTrackableValue: histMax,
		SignificantFigures:    histDigits,
		Counts:                sum,
	})
}

// MergeHists returns one histogram with the samples of all given histograms. It skips those that are nil.
func MergeHists(hs []*hdrhistogram.Histogram) *hdrhistogram.Histogram {
	sum := NewHist()
	for _, h := range hs {
		if h != nil {
			sum.Merge(h)
		}
	}
	return sum
}

// Quantiles are the quantiles that a report shows.
var Quantiles = []struct {
	Name string
	Q    float64
}{
	{"p50", 0.50},
	{"p90", 0.90},
	{"p99", 0.99},
	{"p99.9", 0.999},
	{"p99.99", 0.9999},
}

// A report shows a quantile only if at least TailMin samples are larger. In crash, event and seq measurements, each
// sample takes long, so TailMinCrash larger samples are enough.
const (
	TailMin      = 10
	TailMinCrash = 3
)

// Quantile returns the q-quantile of h. It returns false if fewer than tail samples lie above the quantile.
func Quantile(h *hdrhistogram.Histogram, q float64, tail int) (float64, bool) {
	if float64(h.TotalCount())*(1-q) < float64(tail)-1e-9 {
		return 0, false
	}
	return float64(h.ValueAtQuantile(q * 100)), true
}

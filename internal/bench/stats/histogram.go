//go:build linux

package stats

import (
	"math/bits"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms in the control page are the counters of an HDR histogram with three significant
// digits over 1 ns … 2^40 ns, without its head. Values below 2048 are exact; above, each power of
// two has 1024 buckets.
const (
	histSubBits = 11
	histHalf    = 1 << (histSubBits - 1)
	histMaxBits = 40
	histMax     = 1<<histMaxBits - 1
	HistBuckets = (histMaxBits - histSubBits + 2) * histHalf
	histDigits  = 3
)

// HistIndex is the bucket of v nanoseconds; values out of range are clamped.
func HistIndex(v int64) int {
	v = min(max(v, 0), histMax)
	shift := bits.Len64(uint64(v)|(1<<histSubBits-1)) - histSubBits
	return shift*histHalf + int(v>>shift)
}

// Record adds one value to the counters of a slot. One writer only.
func Record(counts []uint64, v int64) { counts[HistIndex(v)]++ }

// NewHist returns the histogram of one or more slots' counters, merged exactly.
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

// MergeHists sums histograms; nil ones are skipped.
func MergeHists(hs []*hdrhistogram.Histogram) *hdrhistogram.Histogram {
	sum := NewHist()
	for _, h := range hs {
		if h != nil {
			sum.Merge(h)
		}
	}
	return sum
}

// Quantiles are the reported quantiles. Each has the least number of samples that must lie above
// it.
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

// TailMin is how many samples must lie above a quantile for it to be reported. A crash cell kills
// a process for each sample, and an event or seq cell sleeps before each: fewer samples are
// enough for them.
const (
	TailMin      = 10
	TailMinCrash = 3
)

// Quantile returns the q-quantile of h, and false if fewer than tail samples lie above it.
func Quantile(h *hdrhistogram.Histogram, q float64, tail int) (float64, bool) {
	if float64(h.TotalCount())*(1-q) < float64(tail)-1e-9 {
		return 0, false
	}
	return float64(h.ValueAtQuantile(q * 100)), true
}

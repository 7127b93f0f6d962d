//go:build linux

package stats

import (
	"math"
	"math/big"
	"slices"
	"sync"

	moremath "github.com/aclements/go-moremath/stats"
)

// KindShift is the kind of a Hodges-Lehmann interval for the ratio of two samples. The limits of the interval come from
// the distribution of the U statistic.
const KindShift = "shift 95%"

// Shift is the difference between two samples, without an assumption about their distribution.
type Shift struct {
	Ratio  Interval // second sample divided by the first (Hodges, Lehmann); empty if a value is not positive
	P      float64  // p value of the U test: the probability of such a difference if the samples do not truly differ
	LeastP float64  // the least p value that samples of these sizes can have
}

// Sure reports whether the interval of the ratio contains the true ratio with the required confidence. With too few
// values, the interval is only the range of the ratios.
func (s Shift) Sure() bool { return s.Ratio.Kind == KindShift }

// mostExact is the largest size of samples for which the distribution of the U statistic is computed exactly.
const mostExact = 25

func init() { moremath.MannWhitneyExactLimit = mostExact }

// Compare compares two samples, such as those before and after a change.
func Compare(before, after []float64) Shift {
	s := Shift{P: 1, LeastP: leastP(len(before), len(after))}
	if r, err := moremath.MannWhitneyUTest(slices.Clone(before), slices.Clone(after), moremath.LocationDiffers); err == nil {
		s.P = max(r.P, s.LeastP) // if many values are equal, the approximate p value may be too low
	}
	if slices.ContainsFunc(slices.Concat(before, after), func(v float64) bool { return !(v > 0) || math.IsInf(v, 1) }) {
		return s
	}
	logs := make([]float64, 0, len(before)*len(after))
	for _, x := range before {
		for _, y := range after {
			logs = append(logs, math.Log(y/x))
		}
	}
	slices.Sort(logs)
	n := len(logs)
	if n == 0 {
		return s
	}
	s.Ratio = Interval{Center: math.Exp(Median(logs)), Lo: math.Exp(logs[0]), Hi: math.Exp(logs[n-1]), N: min(len(before), len(after)), Kind: KindRange}
	if k := rankOf(len(before), len(after)); k >= 0 {
		s.Ratio.Lo, s.Ratio.Hi, s.Ratio.Kind = math.Exp(logs[k]), math.Exp(logs[n-1-k]), KindShift
	}
	return s
}

// ranks caches the results of rankOf, by the sizes of the samples.
var ranks sync.Map

// rankOf returns where the confidence interval of two samples of n1 and n2 values begins in the sorted differences of
// all pairs, one value from each sample. The result is the number of differences below the interval, and as many lie
// above it. The result is -1 if the samples are too small for the required confidence.
func rankOf(n1, n2 int) int {
	tail := (1 - Confidence) / 2
	if n1 > mostExact || n2 > mostExact {
		a, b := float64(n1), float64(n2)
		return max(int(a*b/2-1.96*math.Sqrt(a*b*(a+b+1)/12)), 0)
	}
	key := [2]int{n1, n2}
	if known, ok := ranks.Load(key); ok {
		return known.(int)
	}
	d := moremath.UDist{N1: n1, N2: n2}
	k := -1
	for k+1 < n1*n2/2 && d.CDF(float64(k+1)) <= tail {
		k++
	}
	ranks.Store(key, k)
	return k
}

// leastP returns the least p value that samples of n1 and n2 values can have. It is the p value of two samples that do
// not overlap.
func leastP(n1, n2 int) float64 {
	ways, _ := new(big.Float).SetInt(new(big.Int).Binomial(int64(n1+n2), int64(n1))).Float64()
	return min(2/ways, 1)
}

// EnoughFor returns how many values each of two samples needs before Compare can give a p value below alpha.
func EnoughFor(alpha float64) int {
	n := 2
	for leastP(n, n) >= alpha {
		n++
	}
	return n
}

// FalseDiscovery adjusts the p values of many tests by the method of Benjamini and Hochberg. Among the tests whose
// adjusted value is below alpha, the expected share of false findings is at most alpha.
func FalseDiscovery(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case ps[a] < ps[b]:
			return -1
		case ps[a] > ps[b]:
			return 1
		}
		return a - b
	})
	adjusted := make([]float64, len(ps))
	least := 1.0
	for i := len(order) - 1; i >= 0; i-- {
		least = min(least, ps[order[i]]*float64(len(ps))/float64(i+1))
		adjusted[order[i]] = least
	}
	return adjusted
}

// Holm adjusts the p values of many tests by Holm's method. The probability that any test with an adjusted value
// below alpha is a false finding is at most alpha.
func Holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case ps[a] < ps[b]:
			return -1
		case ps[a] > ps[b]:
			return 1
		}
		return 0
	})
	adjusted := make([]float64, len(ps))
	most := 0.0
	for i, at := range order {
		most = max(most, min(ps[at]*float64(len(ps)-i), 1))
		adjusted[at] = most
	}
	return adjusted
}

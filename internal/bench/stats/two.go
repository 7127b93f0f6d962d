//go:build linux

package stats

import (
	"math"
	"math/big"
	"slices"
	"sync"

	moremath "github.com/aclements/go-moremath/stats"
)

// KindShift is an interval by Hodges and Lehmann, from the distribution of the U statistic.
const KindShift = "shift 95%"

// Shift is how a sample differs from another one, in a way that assumes no distribution.
type Shift struct {
	Ratio  Interval // of the second to the first, by Hodges and Lehmann; zero where a value is not positive
	P      float64  // of the U test: the chance of such a difference between equal samples
	LeastP float64  // the least p that so many values can give
}

// Sure tells whether the interval of the ratio has the confidence: few values give their range only.
func (s Shift) Sure() bool { return s.Ratio.Kind == KindShift }

// mostExact bounds the samples whose distribution is computed and not approximated.
const mostExact = 25

func init() { moremath.MannWhitneyExactLimit = mostExact }

// Compare compares two samples.
func Compare(before, after []float64) Shift {
	s := Shift{P: 1, LeastP: leastP(len(before), len(after))}
	if r, err := moremath.MannWhitneyUTest(slices.Clone(before), slices.Clone(after), moremath.LocationDiffers); err == nil {
		s.P = max(r.P, s.LeastP) // the approximation for many ties may be below
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

// ranks keeps what rankOf has computed, by the sizes of the samples.
var ranks sync.Map

// rankOf gives how many of the sorted pairwise differences lie outside the interval on each side; -1
// where even the range has less than the confidence.
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

// leastP is the p of two samples of which all values of one are above all of the other.
func leastP(n1, n2 int) float64 {
	ways, _ := new(big.Float).SetInt(new(big.Int).Binomial(int64(n1+n2), int64(n1))).Float64()
	return min(2/ways, 1)
}

// EnoughFor gives how many values a side needs for a p below alpha.
func EnoughFor(alpha float64) int {
	n := 2
	for leastP(n, n) >= alpha {
		n++
	}
	return n
}

// FalseDiscovery adjusts the p of many tests, as Benjamini and Hochberg do: to call those below alpha
// different gives at most a share of alpha of false calls.
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

// Holm adjusts the p of many tests: to call those below alpha different gives any false call with a
// chance of at most alpha.
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

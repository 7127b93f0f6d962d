//go:build linux

package stats

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// KindPaired is the Kind of an interval for the ratio of two figures that were measured in the same rounds, by Hodges
// and Lehmann. The limits of the interval come from the distribution of the signed-rank statistic.
const KindPaired = "signed rank 95%"

// Effect is the ratio of two figures that were measured in the same rounds. If a disturbance changes both figures of a
// round by the same factor, the ratio of this round does not change.
type Effect struct {
	Interval         // the ratio, by Hodges and Lehmann; after too few rounds, the range of the ratios
	P        float64 // p value of Wilcoxon's exact one-sided signed-rank test for "the ratio exceeds least"
	least    float64
}

// Paired tests whether ratios, one for each round, exceed the parameter least. It returns an error if there are no
// ratios, or if a ratio is not positive and finite. It assumes only that the logarithms of the ratios are distributed
// symmetrically.
func Paired(ratios []float64, least float64) (Effect, error) {
	if len(ratios) == 0 {
		return Effect{}, fmt.Errorf("no round has both figures")
	}
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		if !(r > 0) || math.IsInf(r, 1) {
			return Effect{}, fmt.Errorf("the ratio of a round is %v", r)
		}
		logs[i] = math.Log(r)
	}
	e := Effect{Interval: hodgesLehmann(logs), least: least}
	beyond := make([]float64, len(logs))
	for i, v := range logs {
		beyond[i] = v - math.Log(least)
	}
	e.P = signedRankP(beyond)
	return e, nil
}

// hodgesLehmann returns an estimate of the ratio with an interval. The estimate is the median of the means of all pairs
// of logarithms, converted back to a ratio.
func hodgesLehmann(logs []float64) Interval {
	n := len(logs)
	means := make([]float64, 0, n*(n+1)/2)
	for i, x := range logs {
		for _, y := range logs[i:] {
			means = append(means, (x+y)/2)
		}
	}
	slices.Sort(means)
	q := Interval{math.Exp(Median(means)), math.Exp(slices.Min(logs)), math.Exp(slices.Max(logs)), n, KindRange}
	if k := signedRankOf(n); k >= 0 {
		q.Lo, q.Hi, q.Kind = math.Exp(means[k]), math.Exp(means[len(means)-1-k]), KindPaired
	}
	return q
}

// signedRankP returns the p value of the one-sided signed-rank test. For n values that are distributed symmetrically
// about 0, it is the probability that the sum of the ranks of the positive values is at least as large as in vs. Values
// with the same magnitude get the mean of their ranks, and a 0 counts as negative.
func signedRankP(vs []float64) float64 {
	order := slices.Clone(vs)
	slices.SortFunc(order, func(a, b float64) int {
		switch x, y := math.Abs(a), math.Abs(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	doubled := make([]int, len(order)) // twice the ranks, because a mean of ranks may be half an integer
	sum := 0
	for begin, end := 0, 0; begin < len(order); begin = end {
		for end < len(order) && math.Abs(order[end]) == math.Abs(order[begin]) {
			end++
		}
		for i := begin; i < end; i++ {
			doubled[i] = begin + 1 + end // twice the mean of the ranks of all values with this magnitude
		}
	}
	for i, v := range order {
		if v > 0 {
			sum += doubled[i]
		}
	}
	p := 0.0
	for s, share := range signedRanks(doubled) {
		if s >= sum {
			p += share
		}
	}
	return min(p, 1)
}

// signedRanks returns the distribution of the sum of the positive ranks under the assumption that each rank is positive
// or negative with the same probability.
func signedRanks(ranks []int) []float64 {
	total := 0
	for _, r := range ranks {
		total += r
	}
	chance := make([]float64, total+1)
	chance[0] = 1
	for _, r := range ranks {
		for s := total; s >= 0; s-- {
			chance[s] /= 2
			if s >= r {
				chance[s] += chance[s-r] / 2
			}
		}
	}
	return chance
}

// signedRankCache caches the results of signedRankOf. The key is the number of values.
var signedRankCache sync.Map

// signedRankOf returns where the confidence interval of n values begins in the sorted means of all pairs of values: the
// result is the number of means below the interval, and as many lie above it. The result is -1 if n is too small for
// the required confidence.
func signedRankOf(n int) int {
	if known, ok := signedRankCache.Load(n); ok {
		return known.(int)
	}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i + 1
	}
	tail, below, k := (1-Confidence)/2, 0.0, -1
	for _, share := range signedRanks(ranks) {
		if below += share; below > tail {
			break
		}
		k++
	}
	signedRankCache.Store(n, k)
	return k
}

// EnoughRounds returns the least number of rounds with which the signed-rank test can have a p value below alpha.
func EnoughRounds(alpha float64) int { return int(math.Floor(-math.Log2(alpha))) + 1 }

// mostNeeded is the largest number of rounds that the method Needs returns.
const mostNeeded = 1000

// Needs estimates after how many rounds a test at the level alpha decides whether the effect exceeds the least effect
// that matters. After that many rounds, about 4 of 5 runs decide it. Needs returns 0 if the effect is so close to the
// least effect that even mostNeeded rounds are too few.
func (e Effect) Needs(alpha float64) int {
	if e.N < 2 || e.Lo <= 0 || e.Hi <= e.Lo {
		return EnoughRounds(alpha)
	}
	spread := math.Log(e.Hi/e.Lo) / 2 * math.Sqrt(float64(e.N)) / normalQuantile(1-(1-Confidence)/2) // standard deviation of a round
	room := math.Log(e.Center / e.least)
	level := alpha
	if room < 0 { // the effect is probably too small: its whole interval must lie below the least effect
		level = (1 - Confidence) / 2
	}
	const efficiency = 3 / math.Pi // efficiency of this test relative to the t test, for normal noise
	n := math.Pow((normalQuantile(1-level)+normalQuantile(0.8))*spread/room, 2) / efficiency
	if !(n <= mostNeeded) {
		return 0
	}
	return max(int(math.Ceil(n)), EnoughRounds(alpha), e.N+1)
}

// normalQuantile returns the p-quantile of the standard normal distribution.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

//go:build linux

package stats

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// KindPaired is an interval by Hodges and Lehmann for ratios of rounds, from the distribution of the signed-rank statistic.
const KindPaired = "signed rank 95%"

// Effect is the ratio of two figures, measured round by round. The unit is the round: what disturbs a whole round changes
// both figures, and cancels out.
type Effect struct {
	Interval         // the ratio, by Hodges and Lehmann; the range of the rounds if they are too few for an interval
	P        float64 // p value of "the ratio exceeds the least effect", by the exact one-sided signed-rank test of Wilcoxon
	least    float64
}

// Paired tests whether ratios of rounds exceed least. It returns an error if a ratio is not positive and finite, or if there are none.
// It assumes no distribution but a symmetric one of the logarithms.
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

// hodgesLehmann is the median of the means of all pairs of logarithms, as a ratio, with its interval.
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

// signedRankP is the chance that values which are symmetric about 0 have a sum of positive ranks as large as these. Equal sizes share
// their ranks, and a 0 counts as negative.
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
	doubled := make([]int, len(order)) // twice the rank: that of two equal sizes may be a half
	sum := 0
	for begin, end := 0, 0; begin < len(order); begin = end {
		for end < len(order) && math.Abs(order[end]) == math.Abs(order[begin]) {
			end++
		}
		for i := begin; i < end; i++ {
			doubled[i] = begin + 1 + end // the first and the last rank of equal sizes
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

// signedRanks is the distribution of the sum of those ranks whose signs are positive, if each sign is as likely as the other.
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

// signedRankCache caches the results of signedRankOf, by the number of values.
var signedRankCache sync.Map

// signedRankOf returns how many of the sorted means of pairs lie outside the interval on each side. It returns -1 if even the whole range has
// less than the confidence.
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

// EnoughRounds is how many rounds a test needs at least for a p value below alpha.
func EnoughRounds(alpha float64) int { return int(math.Floor(-math.Log2(alpha))) + 1 }

// mostNeeded bounds the number of rounds that Needs returns.
const mostNeeded = 1000

// Needs estimates how many rounds would decide whether an effect exceeds the least one, at the level alpha: so many that 4 of 5 runs decide it.
// It returns 0 if the centre is too near to the least effect for any number.
func (e Effect) Needs(alpha float64) int {
	if e.N < 2 || e.Lo <= 0 || e.Hi <= e.Lo {
		return EnoughRounds(alpha)
	}
	spread := math.Log(e.Hi/e.Lo) / 2 * math.Sqrt(float64(e.N)) / normalQuantile(1-(1-Confidence)/2) // deviation of a round
	room := math.Log(e.Center / e.least)
	level := alpha
	if room < 0 { // the interval must end before the least effect
		level = (1 - Confidence) / 2
	}
	const efficiency = 3 / math.Pi // efficiency of the test relative to the t test, if the noise is normal
	n := math.Pow((normalQuantile(1-level)+normalQuantile(0.8))*spread/room, 2) / efficiency
	if !(n <= mostNeeded) {
		return 0
	}
	return max(int(math.Ceil(n)), EnoughRounds(alpha), e.N+1)
}

// normalQuantile is the p-quantile of the standard normal distribution.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

//go:build linux

package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPaired compares p values and intervals with those of R: wilcox.test(x, mu = log(least), alternative = "greater",
// conf.int = TRUE).
func TestPaired(t *testing.T) {
	e, err := Paired([]float64{math.Exp(1.83), math.Exp(0.50), math.Exp(1.62), math.Exp(2.48), math.Exp(1.68), math.Exp(1.88), math.Exp(1.55), math.Exp(3.06), math.Exp(1.30)}, 1)
	require.NoError(t, err)
	require.InDelta(t, 1/512.0, e.P, 1e-12)
	require.Equal(t, KindPaired, e.Kind)

	// These pairs are an example in the book of Hollander and Wolfe. Their p value is 0.01953.
	x := []float64{1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30}
	y := []float64{0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29}
	diffs, ratios := make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		diffs[i] = x[i] - y[i]
		ratios[i] = math.Exp(diffs[i])
	}
	e, err = Paired(ratios, 1)
	require.NoError(t, err)
	require.InDelta(t, 0.01953125, e.P, 1e-12)
	require.InDelta(t, 0.46, math.Log(e.Center), 1e-9)
	require.InDelta(t, 0.01, math.Log(e.Lo), 1e-9)
	require.InDelta(t, 0.786, math.Log(e.Hi), 1e-9)

	same := []float64{1.1, 1.1, 1.1, 1.1}
	e, err = Paired(same, 1.1)
	require.NoError(t, err)
	require.Equal(t, 1.0, e.P, "an effect does not exceed itself")
	require.Equal(t, KindRange, e.Kind, "four rounds have no interval of 95 %")
	e, err = Paired(same, 1)
	require.NoError(t, err)
	require.InDelta(t, 1/16.0, e.P, 1e-12, "equal sizes share their ranks")
	for _, bad := range [][]float64{nil, {0}, {-1}, {math.NaN()}, {math.Inf(1)}} {
		_, err = Paired(bad, 1)
		require.Error(t, err)
	}
}

// TestEnoughRounds checks that the least p value that n rounds can have is 2 to the power of -n.
func TestEnoughRounds(t *testing.T) {
	for n := 1; n < 30; n++ {
		vs := make([]float64, n)
		for i := range vs {
			vs[i] = float64(i + 1)
		}
		require.InEpsilon(t, math.Pow(2, -float64(n)), signedRankP(vs), 1e-9)
		least := math.Pow(2, -float64(n))
		require.Equal(t, n, EnoughRounds(least*1.0001), "the least p value, %v, is below alpha", least)
		require.Equal(t, n+1, EnoughRounds(least), "the p value must be below alpha, not equal to it")
	}
	require.Equal(t, 12, EnoughRounds(0.025/60))
	require.Equal(t, 9, EnoughRounds(0.05/20))
	require.Equal(t, -1, signedRankOf(5))
	require.Equal(t, 0, signedRankOf(6))
	require.Equal(t, 13, signedRankOf(12))
}

// TestPairedLevel draws samples of ratios whose true effect is exactly the least effect. At most about 5 of 100 samples
// may have a p value of 0.05 or less. The interval must contain the true ratio in about 95 of 100 samples.
func TestPairedLevel(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	const samples = 4000
	for _, n := range []int{6, 12, 24} {
		low, held := 0, 0
		for range samples {
			rs := make([]float64, n)
			for i := range rs {
				rs[i] = 1.1 * math.Exp(0.1*rng.NormFloat64())
			}
			e, err := Paired(rs, 1.1)
			require.NoError(t, err)
			if e.P <= 0.05 {
				low++
			}
			if e.Lo <= 1.1 && 1.1 <= e.Hi {
				held++
			}
		}
		require.LessOrEqual(t, low, samples*6/100, "%d rounds", n)
		require.GreaterOrEqual(t, held, samples*94/100, "%d rounds", n)
	}
}

// TestNeeds checks the number of rounds that Needs returns for an undecided effect: after that many rounds, most runs
// decide it.
func TestNeeds(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	draw := func(effect float64, n int) Effect {
		rs := make([]float64, n)
		for i := range rs {
			rs[i] = effect * math.Exp(0.14*rng.NormFloat64())
		}
		e, err := Paired(rs, 1.1)
		require.NoError(t, err)
		return e
	}
	const level = 0.05 / 60
	for _, effect := range []float64{1, 1.3} {
		asked, decided := 0, 0
		for range 300 {
			e := draw(effect, 12)
			if e.P < level || e.Hi < 1.1 {
				continue
			}
			n := e.Needs(level)
			if n == 0 || n > 200 {
				continue
			}
			require.Greater(t, n, 12)
			asked++
			if again := draw(effect, n); again.P < level && effect > 1.1 || again.Hi < 1.1 && effect < 1.1 {
				decided++
			}
		}
		require.Greater(t, asked, 20)
		require.GreaterOrEqual(t, decided, asked*6/10, "decided, of %d undecided effects of %v", asked, effect)
	}
	require.Zero(t, Effect{Interval: Interval{1.1, 0.9, 1.3, 12, KindPaired}, least: 1.1}.Needs(level), "no number decides an effect that is as large as the least one")
}

//go:build linux

package report

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/plan"
)

// The noise of synthetic results is log-normal. In addition, some figures are outliers, as if other programs took the
// CPU.
const (
	plantedNoise = 0.03
	outlierShare = 0.05
	plantedCells = 40
	usualLeast   = 0.03
)

// measured draws n figures of a cell whose true figure is v.
func measured(rng *rand.Rand, v float64, n int) (list []float64) {
	for range n {
		x := v * math.Exp(plantedNoise*rng.NormFloat64())
		if rng.Float64() < outlierShare {
			x *= 1 + rng.Float64()
		}
		list = append(list, x)
	}
	return list
}

// measuredFile returns a document with many cells. It multiplies the true figure of the first cells by the parameter
// factor. The parameter changed is the number of these cells.
func measuredFile(rng *rand.Rand, rounds, changed int, factor float64) *Document {
	d := &Document{}
	for i := range plantedCells {
		v := 100 + 10*float64(i)
		if i < changed {
			v *= factor
		}
		d.add("handoff", "c:futex", map[string]string{"place": fmt.Sprint(i)}, map[string][]float64{"p50-ns": measured(rng, v, rounds)})
	}
	return d
}

func verdicts(all *Comparison) map[string]int {
	counts := map[string]int{}
	for _, c := range all.Cells {
		counts[c.Verdict]++
	}
	return counts
}

// TestCompareFindsPlantedChanges checks pairs of files in which one of many cells differs by 10 %. In at least 9 of 10
// pairs, the comparison must find this change and its direction. The files have as many rounds as the default plan, or
// 15 rounds if the least effect is 5 %.
func TestCompareFindsPlantedChanges(t *testing.T) {
	for _, c := range []struct {
		factor, least float64
		rounds        int
	}{{1.1, usualLeast, plan.Rounds}, {1 / 1.1, usualLeast, plan.Rounds}, {1.1, 0.05, 15}, {1 / 1.1, 0.05, 15}} {
		factor := c.factor
		want := map[bool]string{true: cellWorse, false: cellBetter}[factor > 1]
		found, others := 0, 0
		const pairs = 100
		for seed := range uint64(pairs) {
			rng := rand.New(rand.NewPCG(seed, 6))
			before, after := measuredFile(rng, c.rounds, 0, 1), measuredFile(rng, c.rounds, 1, factor)
			all := CompareDocuments(before, after, "", c.least)
			for i, c := range all.Cells {
				called := c.Verdict == cellWorse || c.Verdict == cellBetter
				switch {
				case i == 0 && c.Verdict == want:
					found++
				case called:
					others++
				}
			}
		}
		t.Logf("%+v: %d of %d found", c, found, pairs)
		require.GreaterOrEqual(t, found, pairs*9/10, "%+v", c)
		require.LessOrEqual(t, others, 1, "cells that did not change")
	}
}

// TestCompareOfEqualsFindsNothing checks a hundred pairs of files without a true difference: no cell is called better
// or worse.
func TestCompareOfEqualsFindsNothing(t *testing.T) {
	for _, rounds := range []int{4, 10, plan.Rounds} {
		for seed := range uint64(100) {
			rng := rand.New(rand.NewPCG(seed, 7))
			got := verdicts(CompareDocuments(measuredFile(rng, rounds, 0, 1), measuredFile(rng, rounds, 0, 1), "", usualLeast))
			require.Zero(t, got[cellBetter]+got[cellWorse], "seed %d, %d rounds: %v", seed, rounds, got)
		}
	}
}

// TestCompareNeedsBothOfItsRules checks that each of the two rules of a comparison is needed: the correction of the p
// values, and the least effect that counts. Without a true difference, many p values are below alpha before the
// correction, and few are below alpha after it. If all cells differ by 1 %, the correction leaves many of them
// different, and the least effect leaves none.
func TestCompareNeedsBothOfItsRules(t *testing.T) {
	naive, corrected := 0, 0
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 7))
		all := CompareDocuments(measuredFile(rng, 10, 0, 1), measuredFile(rng, 10, 0, 1), "", 0)
		for _, c := range all.Cells {
			if c.Shift.P < alpha {
				naive++
			}
			if c.Q < alpha {
				corrected++
			}
		}
	}
	require.Greater(t, naive, 100, "cells that a test without correction calls different")
	require.Less(t, corrected, naive/10)
	different := map[float64]int{}
	for seed := range uint64(20) {
		for _, least := range []float64{0, usualLeast} {
			rng := rand.New(rand.NewPCG(seed, 9))
			got := verdicts(CompareDocuments(measuredFile(rng, 100, 0, 1), measuredFile(rng, 100, plantedCells, 1.01), "", least))
			different[least] += got[cellBetter] + got[cellWorse]
		}
	}
	require.Greater(t, different[0], 100, "cells that differ, without a least effect")
	require.Zero(t, different[usualLeast])
}

// TestCompareSeesHundredfold checks that cells whose figures differ by a factor of 100 are never called the same, even
// if they have few repetitions.
func TestCompareSeesHundredfold(t *testing.T) {
	for rounds, want := range map[int]string{1: cellTooFew, 2: cellTooFew, 3: cellTooFew, 4: cellWorse, 10: cellWorse} {
		rng := rand.New(rand.NewPCG(1, 8))
		all := CompareDocuments(measuredFile(rng, rounds, 0, 1), measuredFile(rng, rounds, plantedCells, 100), "", usualLeast)
		require.Equal(t, map[string]int{want: plantedCells}, verdicts(all), "%d rounds", rounds)
		var b bytes.Buffer
		require.NoError(t, all.Write(&b, false))
		require.Contains(t, b.String(), "place=0", "the cell is listed")
		if want == cellTooFew {
			require.Contains(t, b.String(), fmt.Sprintf("%d and %d repetitions cannot show any change", rounds, rounds))
			require.Contains(t, b.String(), "40 cells that are listed differ by more than half in all repetitions")
			require.Contains(t, b.String(), "take 10, and at least 4")
		}
	}
}

// TestCompareMetricsWithZeros checks that a metric that is 0 in some repetitions gets a verdict, although it has no
// ratio.
func TestCompareMetricsWithZeros(t *testing.T) {
	one := func(vs ...float64) *Document {
		d := &Document{}
		d.add("waiters", "shmsync:mutex-one", nil, map[string][]float64{"disturbed": vs})
		return d
	}
	zero := one(0, 0, 0, 0, 0, 0)
	require.Equal(t, map[string]int{cellSame: 1}, verdicts(CompareDocuments(zero, zero, "disturbed", usualLeast)))
	require.Equal(t, map[string]int{cellWorse: 1}, verdicts(CompareDocuments(zero, one(5, 6, 7, 8, 9, 10), "disturbed", usualLeast)))
}

// TestCompareSaysWhatItNeeds checks the number of repetitions that an undecided cell asks for. If the cell is measured
// again with that many repetitions, the comparison finds the change in at least half of all cases.
func TestCompareSaysWhatItNeeds(t *testing.T) {
	decided, asked := 0, 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 9))
		c := compareSamples("x", "p50-ns", measured(rng, 100, 5), measured(rng, 112, 5), usualLeast)
		c.Q = c.Shift.P
		if c.Verdict = c.verdict(); c.Verdict != cellUndecided {
			continue
		}
		n := c.needs()
		if n == 0 || n > 25 {
			continue
		}
		asked++
		again := compareSamples("x", "p50-ns", measured(rng, 100, n), measured(rng, 112, n), usualLeast)
		again.Q = again.Shift.P
		if again.verdict() == cellWorse {
			decided++
		}
	}
	require.Greater(t, asked, 4)
	require.GreaterOrEqual(t, decided, asked/2)
}

// fileOf returns the document of a run with one cell. All figures of the cell are close to 1000 times the parameter
// level, because figures of one run differ less than figures of different runs.
func fileOf(level float64, seed uint64) *Document {
	d := &Document{Schema: Schema}
	rng := rand.New(rand.NewPCG(seed, 3))
	var values []float64
	for range 12 {
		values = append(values, 1000*level*math.Exp(0.002*rng.NormFloat64()))
	}
	d.add("handoff", "shmsync:futex", map[string]string{"place": "llc"}, map[string][]float64{"p50-ns": values})
	return d
}

// TestCompareSeveralFiles compares runs that differ only by chance. With one file on each side, the comparison wrongly
// finds a change. With five files on each side, each file is one sample, and the verdict is undecided.
func TestCompareSeveralFiles(t *testing.T) {
	levels := []float64{1, 1.1, 0.93, 1.04, 0.98}
	side := func(f float64, n int) (list []*Document) {
		for i := range n {
			list = append(list, fileOf(f*levels[i], uint64(i)))
		}
		return list
	}
	one := CompareFiles(side(1, 1), []*Document{fileOf(1.1, 9)}, "", 0.03)
	require.Equal(t, cellWorse, one.Cells[0].Verdict, "two runs that differ by chance")
	several := CompareFiles(side(1, 5), side(1.01, 5), "", 0.03)
	require.Equal(t, cellUndecided, several.Cells[0].Verdict)
	require.Equal(t, 5, several.Cells[0].n1)
	require.Equal(t, cellWorse, CompareFiles(side(1, 5), side(1.5, 5), "", 0.03).Cells[0].Verdict)

	few := CompareFiles(side(1, 3), side(2, 3), "", 0.03)
	require.Equal(t, cellTooFew, few.Cells[0].Verdict)
	var b bytes.Buffer
	require.NoError(t, few.Write(&b, false))
	require.Contains(t, b.String(), "3 and 3 files cannot show any change (least p 0.1): take 10, and at least 4")

	lacking := side(1, 2)
	lacking[1].Cells = nil
	require.Equal(t, 1, CompareFiles(lacking, side(1, 2), "", 0.03).Missing, "a cell that one file lacks is compared in none")
}

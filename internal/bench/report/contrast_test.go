//go:build linux

package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/topology"
)

// TestContrastsOfEveryHost checks that the plan for each recorded host makes few comparisons. With too many
// comparisons, the correction of the p values would leave nothing that the rounds of the plan can prove. Each cell of a
// comparison takes part in all rounds.
func TestContrastsOfEveryHost(t *testing.T) {
	for _, suite := range []struct {
		preset       plan.Preset
		rounds, most int
	}{{plan.DefaultSuite, plan.Rounds, mostContrasts / 2}, {plan.StdSuite, plan.Rounds, mostContrasts}, {plan.QuickSuite, plan.QuickRounds, 20}} {
		require.Less(t, math.Pow(2, -float64(suite.rounds))*float64(suite.most), adviceLevel, "the least p, corrected")
		for _, name := range proctest.Sample(recordedHosts(t), 4) {
			o, cells := cellsOf(t, name, suite.preset)
			require.Equal(t, suite.rounds, o.Count, name)
			n := 0
			d := planted(o, cells, 1)
			tested := d.contrasts()
			for id, list := range tested {
				for _, c := range list {
					require.Equal(t, suite.rounds, c.N, "%s: %s: %s", name, id, c.name)
				}
				n += len(list)
			}
			for _, r := range rules {
				if r.list != nil {
					require.Len(t, tested[r.id], len(r.list(d)), "%s: %s was left out", name, r.id)
				}
			}
			require.LessOrEqual(t, n, suite.most, name)
		}
	}
}

// invented draws the figures of a contrast. All figures have noise, and one of twenty is an outlier. If the parameter
// whole is true, an outlier affects both figures of its round.
func invented(rng *rand.Rand, rounds int, effect, noise float64, whole bool) *contrast {
	outlier := func() float64 {
		if rng.Float64() < 0.05 {
			return 1 + rng.Float64()
		}
		return 1
	}
	x, y := map[int]float64{}, map[int]float64{}
	for i := range rounds {
		x[i], y[i] = effect*math.Exp(noise*rng.NormFloat64()), math.Exp(noise*rng.NormFloat64())
		if f := outlier(); whole {
			x[i], y[i] = f*x[i], f*y[i]
		} else {
			x[i], y[i] = f*x[i], outlier()*y[i]
		}
	}
	c := &contrast{least: 1.1}
	c.against(x, y)
	return c
}

// page draws all contrasts of a report. The parameter first is the true effect of the first contrast, and the parameter
// others is the true effect of each other contrast.
func page(rng *rand.Rand, first, others, noise float64, whole bool) []*contrast {
	list := []*contrast{invented(rng, plan.Rounds, first, noise, whole)}
	for range mostContrasts/2 - 1 {
		list = append(list, invented(rng, plan.Rounds, others, noise, whole))
	}
	correct(list, adviceLevel)
	return list
}

// TestAdviceOfInventedRounds draws reports with 60 contrasts each. If all choices cost the same, no report has advice.
// If each effect is exactly the least effect that matters, at most one report in twenty has advice. The test finds
// larger effects as often as design note 0045 says.
func TestAdviceOfInventedRounds(t *testing.T) {
	const pages = 300
	for _, c := range []struct {
		noise        float64
		whole        bool
		found, clear int // least percentage of reports that find an effect of 1.3 (found), and of 1.5 (clear)
	}{{0.05, true, 95, 100}, {0.10, true, 36, 95}, {0.05, false, 60, 80}, {0.10, false, 24, 72}} {
		rng := rand.New(rand.NewPCG(1, 45))
		equal, border, found, clear := 0, 0, 0, 0
		for range pages {
			if slices.ContainsFunc(page(rng, 1, 1, c.noise, c.whole), (*contrast).sure) {
				equal++
			}
			if slices.ContainsFunc(page(rng, 1.1, 1.1, c.noise, c.whole), (*contrast).sure) {
				border++
			}
			if page(rng, 1.3, 1, c.noise, c.whole)[0].sure() {
				found++
			}
			if page(rng, 1.5, 1, c.noise, c.whole)[0].sure() {
				clear++
			}
		}
		t.Logf("noise of %v, whole rounds %v: of %d pages, advice on %d of equal costs and on %d of effects of 1.1; found %d effects of 1.3, %d of 1.5",
			c.noise, c.whole, pages, equal, border, found, clear)
		require.Zero(t, equal, "%+v", c)
		require.LessOrEqual(t, border, pages/20, "%+v", c)
		require.GreaterOrEqual(t, 100*found, c.found*pages, "%+v", c)
		require.GreaterOrEqual(t, 100*clear, c.clear*pages, "%+v", c)
	}
}

// dirtied adds rounds to all cells of a document. In these rounds, other programs made some cells much slower.
func dirtied(d *Document, rounds int, slow func(*Cell) bool) {
	for i := range d.Cells {
		c := &d.Cells[i]
		for range rounds {
			metrics := map[string]float64{}
			for name, v := range c.Reps[0].Metrics {
				metrics[name] = v
				if slow(c) && bench.BetterHigher[name] {
					metrics[name] = v / 4
				} else if slow(c) {
					metrics[name] = 4 * v
				}
			}
			c.Reps = append(c.Reps, Repetition{Status: bench.StatusOK, Dirty: true, Metrics: metrics, Workers: c.Reps[0].Workers})
		}
	}
}

// TestDirtyRoundsAreLeftOut checks that rounds which other programs disturbed do not count: they neither show an effect
// nor hide one. If fewer undisturbed rounds than planned are left, there is no advice.
func TestDirtyRoundsAreLeftOut(t *testing.T) {
	o, cells := plannedCells(t, "two-by-96")
	siblings := func(c *Cell) bool { return c.Scenario == "lock" && c.class().Base() == topology.SMT }
	const many = 60
	clean := planted(o, cells, 1)
	d := planted(o, cells, 1)
	dirtied(d, many, siblings)
	d.Rounds = &Rounds{Planned: plan.Rounds, Made: plan.Rounds + many, Dirty: many}
	d.Env.Others, d.Env.Steal = 0.5, 0.5
	require.Empty(t, timed(Recommend(d)), "each round is judged by itself, and dirty ones are left out")
	for i := range clean.Cells {
		require.Equal(t, clean.Cells[i].Values(clean.Cells[i].Unit), d.Cells[i].Values(d.Cells[i].Unit))
	}
	penalty := func(top *topology.Topology, c *bench.Cell, cpus []int) float64 {
		if c.Scenario.Name == "lock" && among(top, cpus, topology.SMT) {
			return 1.6
		}
		return 1
	}
	d = planted(o, cells, 1, penalty)
	dirtied(d, many, func(c *Cell) bool { return !siblings(c) })
	d.Rounds = &Rounds{Planned: plan.Rounds, Made: plan.Rounds + many, Dirty: many}
	a := adviceOf(t, d, "R13")
	require.Equal(t, adviceDo, a.Verdict)
	require.Equal(t, plan.Rounds, a.Effect.N)

	d.Rounds = &Rounds{Planned: plan.Rounds + 1, Made: plan.Rounds + many, Dirty: many}
	a = adviceOf(t, d, "R13")
	require.Equal(t, adviceUndecided, a.Verdict, "a clean round is missing")
	require.Contains(t, a.Text, "other programs disturbed 60 of 72 rounds, and 13 clean ones are needed")
	d.Rounds.Dirty = 0
	require.Equal(t, adviceDo, adviceOf(t, d, "R13").Verdict, "a round that was left out for lack of time is no dirty one")
}

//go:build linux

package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/topology"
)

// TestPlantedStreams checks the advice of a long suite on where to put data that many cores stream. There is no advice
// if all costs are equal, or if the pages were on other nodes than requested.
func TestPlantedStreams(t *testing.T) {
	data := func(factor float64, places ...string) fact {
		return func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
			if c.Stream != nil && strings.Contains(strings.Join(places, " "), c.Stream.Data) {
				return factor
			}
			return 1
		}
	}
	for _, host := range []string{"two-by-96", "sub-numa", "two-socket", "cpuless"} {
		o, cells := cellsOf(t, host, plan.StdSuite)
		for _, f := range []struct {
			text  string
			facts []fact
		}{
			{"keep data that one node scans on that node", []fact{data(1.8, bench.DataOne, bench.DataSpread)}},
			{"spread data that cores of all nodes scan", []fact{data(1.8, bench.DataOne)}},
			{"", nil},
		} {
			seeds := proctest.Rounds(5, 20)
			said := 0
			for seed := range uint64(seeds) {
				if a := adviceOf(t, planted(o, cells, seed, f.facts...), "R17"); a.Verdict == adviceDo {
					require.Contains(t, a.Text, f.text, host)
					said++
				}
			}
			if f.text == "" {
				require.LessOrEqual(t, said, 1, host)
			} else {
				require.GreaterOrEqual(t, said, seeds*19/20, "%s: %s", host, f.text)
			}
		}
		d := planted(o, cells, 1, data(1.8, bench.DataOne))
		for i := range d.Cells {
			for _, r := range d.Cells[i].Reps {
				r.Metrics["as-asked-%"] = 80
			}
		}
		require.Equal(t, adviceUnknown, adviceOf(t, d, "R17").Verdict, host)
	}
	o, cells := cellsOf(t, "hosts/vm-2cpu", plan.StdSuite)
	a := adviceOf(t, planted(o, cells, 1), "R17")
	require.Equal(t, adviceMoot, a.Verdict)
	require.Contains(t, a.Text, "a load takes")
}

// TestPlantedBias checks the advice of a long suite on whether holds should be biased. There is no advice if the costs
// are equal.
func TestPlantedBias(t *testing.T) {
	slow := func(subject string) fact {
		return func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
			if c.Scenario.Name == "intruder" && c.Subject.Name() == subject && c.Gap == 100_000 {
				return 1.8
			}
			return 1
		}
	}
	for _, host := range []string{"hosts/vm-2cpu", "two-by-96"} {
		o, cells := cellsOf(t, host, plan.StdSuite)
		for _, f := range []struct {
			verdict, text string
			facts         []fact
		}{
			{adviceDo, "without bias: with an intruder every 100us", []fact{slow("shmsync:mutex")}},
			{adviceAsIs, "leave holds biased", []fact{slow("shmsync:mutex-checked")}},
			{adviceNone, "", nil},
		} {
			seeds := proctest.Rounds(5, 20)
			right := 0
			for seed := range uint64(seeds) {
				a := adviceOf(t, planted(o, cells, seed, f.facts...), "R18")
				if a.Verdict == f.verdict && strings.Contains(a.Text, f.text) || f.verdict == adviceNone && a.Verdict == adviceUndecided {
					right++
				}
			}
			require.GreaterOrEqual(t, right, seeds*19/20, "%s: %s", host, f.text)
		}
	}
}

//go:build linux

package report

import (
	"fmt"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// homeGain is the least gain for which rule R16 advises to place the memory of a lock on a NUMA node whose CPUs use the
// lock.
const homeGain = 1.1

// placed is a percentage. Advice uses a measurement only if at least this share of its memory was on the NUMA nodes of
// the plan.
const placed = 99

// homes returns the cells of a subject that measure a lock whose memory was on the NUMA node of the plan.
func (d *Document) homes(subject string) []*Cell {
	return d.find("home", by(subject), func(c *Cell) bool {
		found := c.Values("as-asked-%")
		return len(found) > 0 && slices.Min(found) >= placed
	})
}

// homeContrasts returns the comparisons for rule R16. For each pair of CPUs, it compares memory on the NUMA node of the
// first CPU with memory on a node of neither CPU.
func homeContrasts(d *Document) (list []*contrast) {
	cells := d.homes("shmsync:mutex")
	for _, first := range cells {
		for _, third := range cells {
			if first.Params["home"] == bench.HomeFirst && third.Params["home"] == bench.HomeThird && first.Params["place"] == third.Params["place"] {
				list = append(list, contrastOf(third.Key, first, third, "ops/s", homeGain))
			}
		}
	}
	return list
}

// adviseHome is rule R16: on which NUMA node the memory of a lock should be. If several pairs of CPUs were measured,
// the advice is about the pair with the largest effect.
func adviseHome(d *Document, list []*contrast) *advice {
	cells := d.find("home", by("shmsync:mutex"))
	switch {
	case len(cells) == 0 && d.skipped("home"):
		return &advice{Verdict: adviceMoot, Text: "one node has all memory"}
	case len(list) == 0:
		return nil
	}
	var top *contrast
	for _, c := range list {
		if top == nil || c.sure() && !top.sure() || c.sure() == top.sure() && c.Center > top.Center {
			top = c
		}
	}
	a := &advice{Verdict: adviceNone, Effect: top.effectOf(),
		Text: fmt.Sprintf("a lock on a node of its users is not surely faster by %.0f %% than one on a third node", 100*(homeGain-1))}
	for _, c := range d.find("home", with("place", top.worse.Params["place"])) {
		a.Evidence = append(a.Evidence, c.evidence("ops/s"))
	}
	if top.sure() {
		a.Verdict = adviceDo
		a.Text = fmt.Sprintf("place a lock on a node of the processes that use it: on CPUs %s it lets through %s holds a second there, and %s if its memory lies on a third node",
			top.better.onCPUs(), formatMetric("ops/s", stats.Median(top.better.Values("ops/s"))), formatMetric("ops/s", stats.Median(top.worse.Values("ops/s"))))
		a.Do = []string{"NUMA: shm.Policy{Mode: shm.PolicyBind, Nodes: []int{NODE}} of the arena's options, with the node of these CPUs; one arena for each group of processes"}
	}
	return a
}

// skipped reports whether all measurements of a scenario were skipped on this host.
func (d *Document) skipped(scenario string) bool {
	some := false
	for i := range d.Cells {
		if c := &d.Cells[i]; c.Scenario == scenario {
			some = true
			if c.Status != bench.StatusSkipped {
				return false
			}
		}
	}
	return some
}

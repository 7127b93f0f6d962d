//go:build linux

package report

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync/internal/bench/stats"
)

// biasGain is the least gain for which rule R18 recommends a lock that becomes biased, or recommends a lock that never
// becomes biased.
const biasGain = 1.1

// biasContrasts returns the comparisons for rule R18. In a measurement, one process uses a lock all the time, and
// another process, the intruder, locks it once after each pause. For each length of the pause, there are two
// comparisons: whether a biased lock is faster, and whether a lock without bias is faster.
func biasContrasts(d *Document) (list []*contrast) {
	for _, biased := range d.find("intruder", by("shmsync:mutex")) {
		for _, plain := range d.find("intruder", by("shmsync:mutex-checked"), alike(biased)) {
			list = append(list, contrastOf("biased "+biased.Key, biased, plain, "ops/s", biasGain),
				contrastOf("plain "+biased.Key, plain, biased, "ops/s", biasGain))
		}
	}
	return list
}

// adviseBias is rule R18: whether a lock should be biased toward the process that uses it most, if another process
// locks it now and then.
func adviseBias(d *Document, list []*contrast) *advice {
	if len(list) == 0 {
		return nil
	}
	a := &advice{Verdict: adviceNone, Text: fmt.Sprintf("with an occasional intruder, neither a biased lock nor another one is surely faster for its owner by %.0f %%", 100*(biasGain-1))}
	for _, c := range d.find("intruder") {
		a.Evidence = append(a.Evidence, c.evidence("ops/s"))
		if len(c.Values("p50-ns")) > 0 {
			a.Evidence = append(a.Evidence, c.evidence("p50-ns"))
		}
	}
	for _, c := range d.find("fence") {
		a.Evidence = append(a.Evidence, c.evidence("p50-ns"))
	}
	var top, kept *contrast
	for _, c := range list {
		switch {
		case !c.sure():
		case strings.HasPrefix(c.name, "plain") && (top == nil || c.Center > top.Center):
			top = c
		case strings.HasPrefix(c.name, "biased") && (kept == nil || c.Center > kept.Center):
			kept = c
		}
	}
	figures := func(c *contrast) string {
		return fmt.Sprintf("with an intruder every %s its owner gets %s holds a second through, and %s otherwise", c.better.Params["gap"],
			formatMetric("ops/s", stats.Median(c.better.Values("ops/s"))), formatMetric("ops/s", stats.Median(c.worse.Values("ops/s"))))
	}
	switch {
	case top != nil:
		a.Verdict, a.Effect = adviceDo, top.effectOf()
		a.Text = "open a lock that other processes take so often without bias: " + figures(top)
		a.Do = []string{"prims.MutexOptions{Checked: true} in each process that opens the Mutex"}
	case kept != nil:
		a.Verdict, a.Effect = adviceAsIs, kept.effectOf()
		a.Text = "leave holds biased, as they are by default: " + figures(kept)
	}
	return a
}

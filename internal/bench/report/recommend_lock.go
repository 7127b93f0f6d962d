//go:build linux

package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// These are limits for rule R6, the advice on a NUMA-aware lock.
const (
	cohortCrowd  = 4        // least number of contenders on each of two nodes
	cohortGain   = 1.1      // least gain in throughput over the plain lock
	cohortTail   = 2.0      // greatest ratio of its p99 wait to the p99 wait of the plain lock
	cohortJain   = 0.8      // least fairness, as Jain's index
	cohortShare  = 0.5      // least share of any worker, relative to the mean share
	cohortMarker = "cohort" // part of the name of each NUMA-aware lock
)

// cohortContrasts returns the comparisons for rule R6. It compares each NUMA-aware lock with the plain lock, in
// measurements with enough contenders on several nodes.
func cohortContrasts(d *Document) (list []*contrast) {
	if d.Topology == nil || d.Env.Nodes < 2 {
		return nil
	}
	for _, c := range d.cohortLocks() {
		plain, _, _ := strings.Cut(c.Subject, "-"+cohortMarker)
		for _, p := range d.find("lock", by(plain), alike(c)) {
			if enough, _ := c.proven(d.Topology); enough {
				list = append(list, contrastOf(c.Key, c, p, "ops/s", cohortGain))
			}
		}
	}
	return list
}

// cohortLocks returns the cells that measure a NUMA-aware lock of the library.
func (d *Document) cohortLocks() []*Cell {
	return d.find("lock", func(c *Cell) bool { return c.ours() && strings.Contains(c.Subject, cohortMarker) })
}

// adviseCohort is rule R6: whether to use a lock that prefers waiters of the NUMA node that has the lock. Such a lock
// must gain enough, its slowest waits must not be much longer, and each worker must get a fair share. There must be
// proof that the contenders ran on several nodes.
func adviseCohort(d *Document, list []*contrast) *advice {
	if d.Env.Nodes < 2 && d.Topology != nil && len(d.cohortLocks()) > 0 {
		return &advice{Verdict: adviceMoot, Text: "one NUMA node: nothing to prefer"}
	}
	var top *advice
	crowd := 0 // number of contenders that top names
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *contrast) int { return b.better.workers() - a.better.workers() })
	ended := map[string]bool{} // parameters with which the lock was not good enough for a larger number of workers
	for _, x := range list {
		c, p := x.better, x.worse
		line := c.group("procs", "threads")
		_, doubt := c.proven(d.Topology)
		if _, other := p.proven(d.Topology); doubt == "" {
			doubt = other
		}
		a := &advice{Verdict: adviceNone, Effect: x.effectOf(), Evidence: []string{c.evidence("ops/s"), p.evidence("ops/s"), c.evidence("p99-ns"), p.evidence("p99-ns"), c.evidence("jain"), c.evidence("in-place")}}
		slower := stats.Median(c.Values("p99-ns")) / stats.Median(p.Values("p99-ns"))
		fair, least := stats.Median(c.Values("jain")), stats.Median(c.Values("min-share"))
		switch {
		case doubt != "":
			a.Text = "no ground for advice on " + c.Subject + ": " + doubt
		case !x.sure():
			a.Text = fmt.Sprintf("%s gains less than %.0f %% with %d contenders, or not surely", c.Subject, 100*(cohortGain-1), c.workers())
		case slower > cohortTail:
			a.Text = fmt.Sprintf("%s gains, and its slowest waits (p99) take %s times as long: too much", c.Subject, formatRatio(slower))
		case fair < cohortJain:
			a.Text = fmt.Sprintf("%s gains, and shares badly: Jain's index is %.2f", c.Subject, fair)
		case least < cohortShare:
			a.Text = fmt.Sprintf("%s gains, and starves a worker: it gets %.2f of the mean", c.Subject, least)
		default:
			a.Verdict = adviceDo
			a.Text = fmt.Sprintf("use %s for locks with %d contenders or more, of several nodes", strings.TrimPrefix(c.Subject, bench.Library+":"), c.workers())
		}
		ended[line] = ended[line] || a.Verdict != adviceDo && (x.sure() || x.Center < cohortGain)
		if top == nil || a.Verdict == adviceDo && !ended[line] && (top.Verdict != adviceDo || c.workers() < crowd) {
			top, crowd = a, c.workers()
		}
	}
	return top
}

// rwGain is the least gain in throughput for which rule R7 recommends an RWMutex instead of a Mutex, or a Mutex instead
// of an RWMutex.
const rwGain = 1.1

// rwContrasts returns the comparisons for rule R7. It tests at each percentage of reads whether an RWMutex is better
// than a Mutex. At the largest percentage, it also tests whether a Mutex is better.
func rwContrasts(d *Document) (list []*contrast) {
	most := map[string]*contrast{}
	for _, c := range d.find("rw", by("shmsync:rwmutex")) {
		for _, p := range d.find("rw", by("shmsync:mutex"), alike(c)) {
			x := contrastOf(c.Key, c, p, "ops/s", rwGain)
			read, err := strconv.Atoi(c.Params["read"])
			if err != nil {
				continue
			}
			x.at = read
			list = append(list, x)
			if last := most[c.group("read")]; last == nil || last.at < read {
				most[c.group("read")] = x
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(most)) {
		list = append(list, contrastOf("mutex "+name, most[name].worse, most[name].better, "ops/s", rwGain))
	}
	return list
}

// adviseRW is rule R7: the percentage of reads from which on an RWMutex has more throughput than a Mutex.
func adviseRW(_ *Document, list []*contrast) *advice {
	var names []string
	lines := map[string][]*contrast{}
	for _, c := range list {
		if c.better.Subject != "shmsync:rwmutex" {
			continue
		}
		name := c.better.group("read")
		if lines[name] == nil {
			names = append(names, name)
		}
		lines[name] = append(lines[name], c)
	}
	if len(names) == 0 {
		return nil
	}
	where := func(name string) string { // a text with the parameters of the cells, if cells with other parameters exist
		if len(names) == 1 {
			return ""
		}
		return " (" + name + ")"
	}
	a := &advice{Verdict: adviceNone, Text: "neither lets surely more through than the other"}
	var texts []string
	for _, name := range names {
		line := lines[name]
		slices.SortFunc(line, func(a, b *contrast) int { return a.at - b.at })
		from := len(line) // from this index of line on, the RWMutex is better
		for from > 0 && line[from-1].sure() {
			from--
		}
		for _, p := range line {
			a.Evidence = append(a.Evidence, fmt.Sprintf("%d %% reads: RWMutex %s of Mutex  %s", p.at, effectText(p.Interval), name))
		}
		switch mutex := pick(list, "mutex "+name); {
		case mutex.sure():
			texts = append(texts, fmt.Sprintf("use a Mutex even at %d %% reads", line[len(line)-1].at)+where(name))
			a.Effect = mutex.effectOf()
		case from < len(line):
			text := fmt.Sprintf("an RWMutex pays from %d %% reads on", line[from].at)
			if from > 0 {
				text += fmt.Sprintf(", and not at %d %%: use a Mutex below", line[from-1].at)
			}
			texts = append(texts, text+where(name))
			a.Effect = line[len(line)-1].effectOf()
		}
	}
	if len(texts) > 0 {
		a.Verdict, a.Text = adviceDo, strings.Join(texts, "; ")
	}
	return a
}

// stripeGain is the least gain for which rule R8 advises more stripes. A stripe is a key with a lock of its own.
const stripeGain = 1.1

// stripeLines returns lists of cells that differ only in the number of keys. The number ascends in each list.
func (d *Document) stripeLines() (lines [][]*Cell) {
	done := map[string]bool{}
	for _, c := range d.find("multi", (*Cell).ours) {
		name := c.Subject + " " + c.group("keys")
		if done[name] {
			continue
		}
		done[name] = true
		line := d.find("multi", by(c.Subject), alike(c, "keys"))
		slices.SortFunc(line, func(a, b *Cell) int { return a.number("keys") - b.number("keys") })
		if len(line) > 1 {
			lines = append(lines, line)
		}
	}
	return lines
}

// stripeContrasts returns the comparisons that rule R8 needs.
func stripeContrasts(d *Document) (list []*contrast) {
	for _, line := range d.stripeLines() {
		list = append(list, knees(line, "ops/s", stripeGain)...)
	}
	return list
}

// adviseStripes is rule R8: the number of keys, each with a lock of its own, above which more keys do not increase the
// throughput.
func adviseStripes(d *Document, list []*contrast) *advice {
	var top *advice
	for _, line := range d.stripeLines() {
		knee := knee(line, list)
		a := &advice{Verdict: adviceNone, Text: fmt.Sprintf("more stripes than %d do not surely gain %.0f %%", line[0].number("keys"), 100*(stripeGain-1))}
		for _, c := range line {
			a.Evidence = append(a.Evidence, c.evidence("ops/s"))
		}
		if knee > 0 {
			q := between(line, list, knee, 0)
			a.Effect, a.Verdict = q.effectOf(), adviceDo
			a.Text = fmt.Sprintf("use %d stripes: %d workers get %s× as much through as with %d", line[knee].number("keys"), line[knee].workers(), formatRatio(q.Center), line[0].number("keys"))
			if knee == len(line)-1 {
				a.Text += "; more were not measured"
			} else {
				a.Text += fmt.Sprintf("; more gain less than %.0f %%", 100*(stripeGain-1))
			}
		}
		if top == nil || a.Effect != nil && (top.Effect == nil || a.Effect.Center > top.Effect.Center) {
			top = a
		}
	}
	return top
}

func (c *Cell) number(param string) int {
	v, _ := strconv.Atoi(c.Params[param])
	return v
}

// batchGain is the least gain for which rule R9 advises to move several items at a time.
const batchGain = 1.1

// batchContrasts returns the comparisons that rule R9 needs.
func batchContrasts(d *Document) (list []*contrast) {
	for _, one := range d.find("queue", by("shmsync:queue"), with("batch", "1")) {
		for _, c := range d.find("queue", by("shmsync:queue"), alike(one, "batch"), func(c *Cell) bool { return c.number("batch") > 1 }) {
			list = append(list, contrastOf(c.Key, c, one, "ops/s", batchGain))
		}
	}
	return list
}

// adviseBatch is rule R9: move several items at a time, so that they share the cost of a wake.
func adviseBatch(_ *Document, list []*contrast) *advice {
	var top *advice
	for _, x := range list {
		c, one := x.better, x.worse
		a := &advice{Verdict: adviceNone, Effect: x.effectOf(), Evidence: []string{one.evidence("ops/s"), c.evidence("ops/s")},
			Text: fmt.Sprintf("batches of %d do not surely gain %.0f %%", c.number("batch"), 100*(batchGain-1))}
		if x.sure() {
			a.Verdict = adviceDo
			a.Text = fmt.Sprintf("move %d items at a time: %s → %s items a second", c.number("batch"),
				formatMetric("ops/s", stats.Median(one.Values("ops/s"))), formatMetric("ops/s", stats.Median(c.Values("ops/s"))))
		}
		if top == nil || a.Verdict == adviceDo && (top.Verdict != adviceDo || x.Center > top.Effect.Center) {
			top = a
		}
	}
	return top
}

// adviseDeath is rule R10. It says how long it takes until the lock of a killed process has an owner again, with
// and without the kernel features that report deaths.
func adviseDeath(d *Document, _ []*contrast) *advice {
	c := best(d.find("crash", by("shmsync:mutex"), with("place", bench.PlaceCross), with("role", "")), "p50-ns")
	if c == nil {
		c = best(d.find("crash", by("shmsync:mutex"), with("role", "")), "p50-ns")
	}
	if c == nil {
		return nil
	}
	worst := func(c *Cell) string {
		metric := "max-ns"
		if len(c.Values("p99-ns")) > 0 {
			metric = "p99-ns"
		}
		return fmt.Sprintf("p50 %s, %s %s", formatMetric("p50-ns", stats.Median(c.Values("p50-ns"))), strings.TrimSuffix(metric, "-ns"), formatMetric(metric, slices.Max(c.Values(metric))))
	}
	a := &advice{Verdict: adviceAsIs, Text: "from the kill of an owner to the next: " + worst(c), Evidence: []string{c.evidence("p50-ns"), c.evidence("max-ns")}}
	if text, evidence := deathText(d, c); text != "" {
		a.Text, a.Evidence = text, append(evidence, c.evidence("max-ns"))
	}
	for _, kind := range []struct{ subject, lacks string }{
		{"shmsync:mutex-norobust", "the kernel's robust list"}, {"shmsync:mutex-nowaitv", "futex_waitv"}, {"shmsync:mutex-bare", "anything but the byte lock"},
	} {
		for _, p := range d.find("crash", by(kind.subject), alike(c)) {
			q, err := gain(c, p, "p50-ns")
			if err != nil {
				continue
			}
			a.Evidence = append(a.Evidence, fmt.Sprintf("without %s: %s, %s  %s", kind.lacks, worst(p), effectText(q), p.Key))
		}
	}
	return a
}

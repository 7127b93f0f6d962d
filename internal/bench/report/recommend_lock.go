//go:build linux

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// The least gain and the greatest cost of a NUMA-aware lock (R6).
const (
	cohortCrowd  = 4 // least number of contenders on a node
	cohortGain   = 1.1
	cohortTail   = 2.0
	cohortJain   = 0.8
	cohortShare  = 0.5      // least share for the least lucky worker, relative to the mean
	cohortMarker = "cohort" // part of the names of such subjects
)

// adviseCohort is R6: a lock that prefers waiters of its node. The rule requires proof that
// contenders of several nodes wanted the lock, a large gain, and no cost for the slowest and the
// least lucky worker.
func adviseCohort(d *Document) *advice {
	var top *advice
	for _, c := range d.find("lock", func(c *Cell) bool { return c.ours() && strings.Contains(c.Subject, cohortMarker) }) {
		plain, _, _ := strings.Cut(c.Subject, "-"+cohortMarker)
		for _, p := range d.find("lock", by(plain), alike(c)) {
			q, err := gain(c, p, "ops/s")
			if err != nil || d.Topology == nil {
				continue
			}
			enough, doubt := c.proven(d.Topology)
			if _, other := p.proven(d.Topology); doubt == "" {
				doubt = other
			}
			if d.Env.Nodes > 1 && !enough {
				continue
			}
			a := &advice{Verdict: adviceNone, Effect: &q, Evidence: []string{c.evidence("ops/s"), p.evidence("ops/s"), c.evidence("p99-ns"), p.evidence("p99-ns"), c.evidence("jain"), c.evidence("in-place")}}
			slower := stats.Median(c.Values("p99-ns")) / stats.Median(p.Values("p99-ns"))
			fair, least := stats.Median(c.Values("jain")), stats.Median(c.Values("min-share"))
			switch {
			case d.Env.Nodes < 2:
				a.Verdict, a.Text = adviceMoot, "one NUMA node: nothing to prefer"
			case doubt != "":
				a.Text = "no ground for advice on " + c.Subject + ": " + doubt
			case !sure(q, cohortGain):
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
			if top == nil || a.Verdict == adviceDo && (top.Verdict != adviceDo || q.Center > top.Effect.Center) {
				top = a
			}
		}
	}
	return top
}

// rwGain is the least factor by which one of two locks must have more throughput (R7).
const rwGain = 1.1

// adviseRW is R7: the share of reads from which an RWMutex has more throughput than a Mutex.
func adviseRW(d *Document) *advice {
	type point struct {
		read  int
		q     stats.Interval
		cells [2]*Cell
	}
	var names []string
	lines := map[string][]point{}
	for _, c := range d.find("rw", by("shmsync:rwmutex")) {
		for _, p := range d.find("rw", by("shmsync:mutex"), alike(c)) {
			q, err := gain(c, p, "ops/s")
			read, err2 := strconv.Atoi(c.Params["read"])
			if err != nil || err2 != nil {
				continue
			}
			name := c.group("read")
			if lines[name] == nil {
				names = append(names, name)
			}
			lines[name] = append(lines[name], point{read, q, [2]*Cell{c, p}})
		}
	}
	if len(names) == 0 {
		return nil
	}
	where := func(name string) string { // of which cells, if there are several
		if len(names) == 1 {
			return ""
		}
		return " (" + name + ")"
	}
	a := &advice{Verdict: adviceNone, Text: "neither lets surely more through than the other"}
	var texts []string
	for _, name := range names {
		line := lines[name]
		slices.SortFunc(line, func(a, b point) int { return a.read - b.read })
		from := len(line) // index of the first share from which it pays
		for from > 0 && sure(line[from-1].q, rwGain) {
			from--
		}
		for _, p := range line {
			a.Evidence = append(a.Evidence, fmt.Sprintf("%d %% reads: RWMutex %s of Mutex  %s", p.read, effectText(p.q), name))
		}
		switch {
		case from == len(line) && line[from-1].q.Hi < 1/rwGain && line[from-1].q.N >= fewest:
			texts = append(texts, fmt.Sprintf("use a Mutex even at %d %% reads", line[from-1].read)+where(name))
			a.Effect = &stats.Interval{Center: 1 / line[from-1].q.Center, Lo: 1 / line[from-1].q.Hi, Hi: 1 / line[from-1].q.Lo, N: line[from-1].q.N, Kind: line[from-1].q.Kind}
		case from < len(line):
			text := fmt.Sprintf("an RWMutex pays from %d %% reads on", line[from].read)
			if from > 0 {
				text += fmt.Sprintf(", and not at %d %%: use a Mutex below", line[from-1].read)
			}
			texts = append(texts, text+where(name))
			a.Effect = &line[len(line)-1].q
		}
	}
	if len(texts) > 0 {
		a.Verdict, a.Text = adviceDo, strings.Join(texts, "; ")
	}
	return a
}

// stripeGain is the least gain that makes more stripes worthwhile (R8).
const stripeGain = 1.1

// adviseStripes is R8: the number of keys above which more keys gain little.
func adviseStripes(d *Document) *advice {
	var top *advice
	done := map[string]bool{}
	for _, c := range d.find("multi", (*Cell).ours) {
		name := c.Subject + " " + c.group("keys")
		if done[name] {
			continue
		}
		done[name] = true
		line := d.find("multi", by(c.Subject), alike(c, "keys"))
		if len(line) < 2 {
			continue
		}
		slices.SortFunc(line, func(a, b *Cell) int { return a.number("keys") - b.number("keys") })
		knee := 0
		for i := 1; i < len(line); i++ {
			if q, err := gain(line[i], line[knee], "ops/s"); err == nil && sure(q, stripeGain) {
				knee = i
			}
		}
		a := &advice{Verdict: adviceNone, Text: fmt.Sprintf("more stripes than %d do not surely gain %.0f %%", line[0].number("keys"), 100*(stripeGain-1))}
		for _, c := range line {
			a.Evidence = append(a.Evidence, c.evidence("ops/s"))
		}
		if knee > 0 {
			q, err := gain(line[knee], line[0], "ops/s")
			if err != nil {
				continue
			}
			a.Effect, a.Verdict = &q, adviceDo
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

// batchGain is the least gain of a batch (R9).
const batchGain = 1.1

// adviseBatch is R9: move several items at a time, so that many items share the cost of a wake.
func adviseBatch(d *Document) *advice {
	var top *advice
	for _, one := range d.find("queue", by("shmsync:queue"), with("batch", "1")) {
		for _, c := range d.find("queue", by("shmsync:queue"), alike(one, "batch"), func(c *Cell) bool { return c.number("batch") > 1 }) {
			q, err := gain(c, one, "ops/s")
			if err != nil {
				continue
			}
			a := &advice{Verdict: adviceNone, Effect: &q, Evidence: []string{one.evidence("ops/s"), c.evidence("ops/s")},
				Text: fmt.Sprintf("batches of %d do not surely gain %.0f %%", c.number("batch"), 100*(batchGain-1))}
			if sure(q, batchGain) {
				a.Verdict = adviceDo
				a.Text = fmt.Sprintf("move %d items at a time: %s → %s items a second", c.number("batch"),
					formatMetric("ops/s", stats.Median(one.Values("ops/s"))), formatMetric("ops/s", stats.Median(c.Values("ops/s"))))
			}
			if top == nil || q.Center > top.Effect.Center {
				top = a
			}
		}
	}
	return top
}

// adviseDeath is R10: how long it takes until the next owner has the lock of a killed process,
// and how long without the kernel's notices of deaths.
func adviseDeath(d *Document) *advice {
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

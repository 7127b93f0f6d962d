//go:build linux

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// These are the verdicts that a rule for advice can give.
const (
	adviceDo        = "do"
	adviceAsIs      = "as it is"      // measured, and nothing needs to change
	adviceNone      = "no difference" // measured, and no choice is so much better that it matters
	adviceUndecided = "undecided"     // measured, and the interval of the effect is too wide for a decision
	adviceMoot      = "does not apply"
	adviceUnknown   = "not measured"
	adviceWithheld  = "withheld"
)

// advice is the result of applying a rule to a document.
type advice struct {
	Rule     string          `json:"rule"`
	About    string          `json:"about"`
	Verdict  string          `json:"verdict"`
	Text     string          `json:"text"`
	Do       []string        `json:"do,omitempty"`       // options and commands that carry out the advice
	Evidence []string        `json:"evidence,omitempty"` // figures, each with the cell that it comes from
	Effect   *stats.Interval `json:"effect,omitempty"`   // how many times better the choice is; or a value in Unit
	Unit     string          `json:"unit,omitempty"`
	Needs    int             `json:"needs,omitempty"` // estimated number of rounds that would decide the question; 0 if not known

	cpus []int // the CPUs that R2 names
}

// Command returns the command that makes the missing measurement, if the verdict is adviceUnknown.
func (a advice) Command() string { return strings.TrimPrefix(a.Text, measureIt) }

const measureIt = "measure it: "

// rule is one of the rules R1 to R18 for advice, except R11. The rules R0 and R11 are the functions noTiming and
// hygiene.
type rule struct {
	id, about string
	measure   string // the command that measures what the rule needs
	list      func(d *Document) []*contrast
	judge     func(d *Document, list []*contrast) *advice
}

// rules has the rules for advice, in the order in which a report shows them. For each rule, the function in the field
// list returns the comparisons that the rule needs. The function in the field judge gives the advice, or returns nil if
// the cells that the rule needs were not measured.
var rules = []rule{
	{"R1", "spinning", "shmbench handoff", nil, adviseSpin},
	{"R2", "where processes run", "shmbench matrix", colocateContrasts, adviseColocate},
	{"R3", "node of the arena", "shmbench mem", nodeContrasts, adviseNode},
	{"R4", "interleaving", "shmbench mem", interleaveContrasts, adviseInterleave},
	{"R5", "huge pages", "shmbench mem --huge none,thp,2M", hugeContrasts, adviseHuge},
	{"R6", "NUMA-aware locks", "shmbench lock --procs 16 --threads 1 --place spread", cohortContrasts, adviseCohort},
	{"R7", "RWMutex or Mutex", "shmbench rw --prim 'shmsync:*'", rwContrasts, adviseRW},
	{"R8", "number of stripes", "shmbench multi --keys 1:1024:*4", stripeContrasts, adviseStripes},
	{"R9", "batches", "shmbench queue --batch 1,16", batchContrasts, adviseBatch},
	{"R10", "news of deaths", "shmbench crash", nil, adviseDeath},
	{"R12", "where a sleeping consumer runs", "shmbench wake --place classes", wakeContrasts, adviseWakes},
	{"R13", "threads of one core", "shmbench lock --place smt,llc --procs 2 --threads 1", smtContrasts, adviseSMT},
	{"R15", "padding of shared data", "shmbench padding", padContrasts, advisePadding},
	{"R16", "node of a lock", "shmbench home", homeContrasts, adviseHome},
	{"R17", "data that many cores stream", "shmbench stream", streamContrasts, adviseStream},
	{"R18", "biased holds", "shmbench bias", biasContrasts, adviseBias},
	{"R14", "slow memory", "shmbench mem --mem bind", slowContrasts, adviseSlowNode},
}

// Recommend applies all rules to a document and returns their advice.
func Recommend(d *Document) []advice {
	var all []advice
	if why := noTiming(d); len(why) > 0 {
		all = append(all, advice{Rule: "R0", About: "trust in figures", Verdict: adviceWithheld,
			Text: "no advice on times: the figures show that things work, and not how fast", Evidence: why})
		return append(all, hygiene(d)...)
	}
	tested := d.contrasts()
	for _, r := range rules {
		a := r.judge(d, tested[r.id])
		if a == nil {
			a = &advice{Verdict: adviceUnknown, Text: measureIt + r.measure}
		}
		if a.Verdict == adviceNone {
			if text, rounds := undecided(tested[r.id]); text != "" {
				if few := d.Rounds.few(); few != "" {
					text, rounds = few, 0
				}
				a.Verdict, a.Needs = adviceUndecided, rounds
				a.Text += "; " + text
			}
		}
		a.Rule, a.About = r.id, r.about
		all = append(all, *a)
	}
	oneEach(d, all)
	return append(all, hygiene(d)...)
}

// oneEach combines the advice of two rules in one command. R2 names the CPUs to use, and R13 may advise to use only one
// thread of each core. The command then names one thread of each core of the CPUs of R2.
func oneEach(d *Document, all []advice) {
	domain := slices.IndexFunc(all, func(a advice) bool { return a.Rule == "R2" && a.Verdict == adviceDo && len(a.cpus) > 0 })
	apart := slices.IndexFunc(all, func(a advice) bool { return a.Rule == "R13" && a.Verdict == adviceDo })
	if domain < 0 || apart < 0 {
		return
	}
	var cpus []int
	for _, core := range d.Topology.Groups(all[domain].cpus, topology.ByCore) {
		cpus = append(cpus, core[0])
	}
	slices.Sort(cpus)
	list := topology.FormatList(cpus)
	all[domain].Do = []string{"taskset -c " + list + " PROGRAM, or cpuset.cpus=" + list + ": one thread of each core"}
	all[apart].Do = nil
	if before, after, ok := strings.Cut(all[apart].Text, ", CPUs "); ok { // R2 excludes some of these CPUs
		_, after, _ = strings.Cut(after, ":")
		all[apart].Text = before + ":" + after
	}
}

// noTiming is rule R0. It returns the reasons why no advice on times can rest on the figures of a document.
func noTiming(d *Document) (why []string) {
	e := d.Env
	if host.Emulated(e.CPU) {
		why = append(why, fmt.Sprintf("the CPU is emulated: %s", e.CPU))
	}
	judged := d.Rounds != nil // the run has checked each round, and disturbed rounds do not count
	if e.Others > host.MostOthers && !judged {
		why = append(why, fmt.Sprintf("other programs took %.1f %% of the time of the CPUs that were used", 100*e.Others))
	}
	if e.Steal > host.MostSteal && !judged {
		why = append(why, fmt.Sprintf("the hypervisor took %.1f %% of the time", 100*e.Steal))
	}
	if e.Throttled > 0 && !judged {
		why = append(why, fmt.Sprintf("the cgroup's quota stopped the run %d times", e.Throttled))
	}
	if share := d.lost(); share > host.MostOthers {
		why = append(why, fmt.Sprintf("workers that had a CPU each, and did not sleep, were without it for %.1f %% of the time", 100*share))
	}
	pinned, placed := false, false
	for i := range d.Cells {
		place, ok := d.Cells[i].Params["place"]
		placed = placed || ok
		pinned = pinned || ok && place != bench.PlaceAny
	}
	if placed && !pinned {
		why = append(why, "no cell was pinned: --place any")
	}
	return why
}

// awake has the scenarios whose workers hardly ever sleep.
var awake = []string{"handoff", "lock", "readers", "padding", "home", "matrix"}

// These are limits of the method lost.
const (
	mostSleeps = 50  // sleeps of a worker in a second; until a woken thread runs, at most 0.1 ms pass
	leastTime  = 0.2 // seconds of all workers; less may be one time slice of another program
)

// lost returns the share of the time for which other programs had the CPUs of the workers. It considers only workers
// that had a CPU each and hardly ever slept: if such a worker did not run, another program had its CPU. The number of
// involuntary context switches says less. Each sched_yield of a busy wait counts as a switch, and a program that takes
// the CPU once may keep it for long.
func (d *Document) lost() float64 {
	used, seconds := 0.0, 0.0
	for i := range d.Cells {
		c := &d.Cells[i]
		if !slices.Contains(awake, c.Scenario) || !c.class().Valid() || c.Params["threads"] != "1" && c.Params["threads"] != "" || c.number("procs") > 2 {
			continue
		}
		for _, r := range c.Reps {
			if r.Dirty || r.Status != bench.StatusOK {
				continue
			}
			for _, w := range r.Workers {
				if w.CPU >= 0 && w.Seconds > 0 && float64(w.Voluntary) <= mostSleeps*w.Seconds {
					used += min(float64(w.UserNs+w.SystemNs)/1e9, w.Seconds)
					seconds += w.Seconds
				}
			}
		}
	}
	if seconds < leastTime {
		return 0
	}
	return 1 - used/seconds
}

// find returns the cells of a scenario that were measured without a failure and satisfy all conditions.
func (d *Document) find(scenario string, conditions ...func(*Cell) bool) (list []*Cell) {
next:
	for i := range d.Cells {
		c := &d.Cells[i]
		if c.Scenario != scenario || len(c.Values(c.Unit)) == 0 || c.Status != bench.StatusOK {
			continue
		}
		for _, ok := range conditions {
			if !ok(c) {
				continue next
			}
		}
		list = append(list, c)
	}
	return list
}

// The functions by, with and alike return conditions for the method find.
func by(subject string) func(*Cell) bool {
	return func(c *Cell) bool { return c.Subject == subject }
}

func with(param, value string) func(*Cell) bool {
	return func(c *Cell) bool { return c.Params[param] == value }
}

// alike returns a condition for the method find: a cell has the scenario and the parameters of the cell a. The subject
// and the parameters that the caller names may differ.
func alike(a *Cell, but ...string) func(*Cell) bool {
	return func(c *Cell) bool { return c.Scenario == a.Scenario && c.group(but...) == a.group(but...) }
}

// best returns the cell with the best median of a metric, or nil if no cell has the metric.
func best(cells []*Cell, metric string) *Cell {
	var top *Cell
	for _, c := range cells {
		if len(c.Values(metric)) == 0 {
			continue
		}
		if top == nil || (stats.Median(c.Values(metric)) > stats.Median(top.Values(metric))) == bench.BetterHigher[metric] {
			top = c
		}
	}
	return top
}

// byRound returns the values of a metric by the number of the round. It omits rounds that other programs disturbed.
func (c *Cell) byRound(metric string) map[int]float64 {
	m := map[int]float64{}
	for i, r := range c.Reps {
		if v, ok := r.Metrics[metric]; ok && r.Status == bench.StatusOK && !r.Dirty {
			m[i] = v
		}
	}
	return m
}

// gain returns how many times better the cell a is than the cell b in a metric. It uses the rounds in which both cells
// have the metric. If the metric is in BetterHigher, larger values are better.
func gain(a, b *Cell, metric string) (stats.Interval, error) {
	x, y := b.byRound(metric), a.byRound(metric)
	if bench.BetterHigher[metric] {
		x, y = y, x
	}
	return roundRatio(x, y)
}

// roundRatio returns the ratio of x to y, with its interval. It uses the rounds for which both x and y have a value.
func roundRatio(x, y map[int]float64) (stats.Interval, error) {
	e, err := stats.Paired(ratios(x, y), 1)
	return e.Interval, err
}

// fewest is the least number of rounds from which advice takes a figure for a setting. The figures of only two rounds
// may be close to each other by chance.
const fewest = 3

// exceeds reports whether the whole interval of an effect lies at or above least. This is good enough for evidence, but
// not for advice: among many effects, some have such an interval by chance.
func exceeds(q stats.Interval, least float64) bool {
	return q.N >= fewest && q.Lo >= least
}

// evidence returns a text that shows the median and the range of a metric, and the key of the cell.
func (c *Cell) evidence(metric string) string {
	vs := c.Values(metric)
	if len(vs) == 0 {
		return c.Key + ": no " + metric
	}
	v := stats.Summarize(vs)
	return fmt.Sprintf("%s %s [%s..%s] n=%d  %s", metric, formatMetric(metric, v.Center), formatMetric(metric, v.Lo), formatMetric(metric, v.Hi), v.N, c.Key)
}

// effectText returns a text with a ratio, its interval, and the kind of the interval.
func effectText(q stats.Interval) string {
	return fmt.Sprintf("%s× [%s..%s] (%s of %d)", formatRatio(q.Center), formatRatio(q.Lo), formatRatio(q.Hi), q.Kind, q.N)
}

// WriteAdvice renders advice. It ends with a line that lists the missing measurements.
func WriteAdvice(w io.Writer, all []advice) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\nrecommendations")
	var unknown []string
	for _, a := range all {
		if a.Verdict == adviceUnknown {
			unknown = append(unknown, fmt.Sprintf("%s %s (%s)", a.Rule, a.About, a.Command()))
			continue
		}
		head := fmt.Sprintf("  %-3s %s: ", a.Rule, a.About)
		if a.Verdict != adviceDo {
			head += a.Verdict + ": "
		}
		writeWrapped(w, head, "      ", a.Text)
		if a.Effect != nil && a.Unit == "" {
			fmt.Fprintln(w, cut("      effect: "+effectText(*a.Effect)))
		}
		for _, line := range a.Do {
			writeWrapped(w, "      → ", "        ", line)
		}
		for _, line := range a.Evidence {
			writeWrapped(w, "      · ", "        ", line)
		}
	}
	if len(unknown) > 0 {
		writeWrapped(w, "  not measured: ", "      ", strings.Join(unknown, ", "))
	}
}

// writeWrapped writes a text in lines that are not wider than a table.
func writeWrapped(w io.Writer, head, indent, text string) {
	line, empty := head, true
	for word := range strings.FieldsSeq(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > TableWidth {
			fmt.Fprintln(w, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	fmt.Fprintln(w, cut(line))
}

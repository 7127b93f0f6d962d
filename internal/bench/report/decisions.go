//go:build linux

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/topology"
)

// decision is the answer of a run to one question that the owner of a host has.
type decision struct {
	Number   int
	Question string
	Verdict  string
	Text     string
	Do       []string // options and commands that carry out the answer
	Because  string   // the effect with its interval
	Bars     []peerBar
	Setting  string   // the measurement that the bars show, in words
	Again    string   // the command that measures the answer again
	Evidence []string // figures, and their cells
}

// peerBar is a bar of the chart below a question. It shows the subject of the question, or a primitive of the host for
// comparison: the median, with the range of the repetitions.
type peerBar struct {
	htmlBar
	Role string // why the page shows this primitive
}

// question is one of at most twelve questions that the owner of a host has. The advice of its rules answers it. Below
// the answer, the page shows the measured subject beside primitives of the host.
type question struct {
	text              string
	rules             []string
	scenario, subject string   // what the bars show; both are empty if the question is about the host
	alike             []string // similar primitives of the host, the most similar one first
	crowd             bool     // prefer the cell with the most workers
}

// questions are all questions that a run answers, in the order of the page.
var questions = []question{
	{"On which CPUs should processes that share a lock run?", []string{"R2", "R13"}, "lock", "shmsync:mutex", []string{"c:robust", "c:pthread"}, false},
	{"On which node should the arena lie?", []string{"R3", "R16", "R14"}, "", "", nil, false},
	{"Should large data be spread over the nodes?", []string{"R4", "R17"}, "", "", nil, false},
	{"Which page size?", []string{"R5"}, "", "", nil, false},
	{"How far apart must data of different CPUs lie?", []string{"R15"}, "", "", nil, false},
	{"Which lock for contenders on several nodes?", []string{"R6"}, "lock", "shmsync:mutex-cohort", []string{"c:robust", "c:pthread"}, true},
	{"How many stripes for a table of locks?", []string{"R8"}, "multi", "shmsync:multilock", []string{"c:robust", "c:pthread"}, false},
	{"How long should waiters spin?", []string{"R1"}, "handoff", "shmsync:futex", []string{"c:futex-spin1000", "c:futex"}, false},
	{"Which kind of lock: Mutex or RWMutex, biased or not?", []string{"R7", "R18"}, "rw", "shmsync:rwmutex", []string{"c:rwlock"}, false},
	{"Where should a consumer run, and how many items at a time?", []string{"R12", "R9"}, "queue", "shmsync:queue", []string{"c:cond", "go:pipe"}, false},
	{"How soon is the lock of a dead process owned again?", []string{"R10"}, "crash", "shmsync:mutex", []string{"c:robust"}, false},
	{"Which settings of the host work against this?", []string{"R11"}, "", "", nil, false},
}

// ranks lists the verdicts of advice, from the most important to the least important.
var ranks = []string{adviceDo, adviceUndecided, adviceAsIs, adviceNone, adviceMoot, adviceWithheld, adviceUnknown}

// Decisions answers all questions of the owner of a host with the advice that follows from a document.
func Decisions(d *Document, all []advice) (list []decision) {
	withheld := slices.ContainsFunc(all, func(a advice) bool { return a.Verdict == adviceWithheld })
	for i, q := range questions {
		answers := slices.DeleteFunc(slices.Clone(all), func(a advice) bool { return !slices.Contains(q.rules, a.Rule) })
		slices.SortStableFunc(answers, func(a, b advice) int { return slices.Index(ranks, a.Verdict) - slices.Index(ranks, b.Verdict) })
		one := decision{Number: i + 1, Question: q.text, Verdict: adviceAsIs, Text: "no setting of this host works against placement"}
		if len(answers) == 0 && q.rules[0] != "R11" {
			one.Verdict, one.Text = adviceUnknown, measureIt+q.measure()
			if withheld {
				one.Verdict, one.Text = adviceWithheld, "the figures of this run are no ground for advice"
			}
		}
		one.take(answers)
		if q.rules[0] != "R11" {
			one.Again = q.measure()
		}
		if !withheld && one.Verdict != adviceUnknown {
			one.Setting, one.Bars = q.peers(d)
		}
		list = append(list, one)
	}
	return list
}

// take merges the answers of several rules into one decision. The text of the first answer comes first. The texts of
// other answers follow if they ask for an action.
func (one *decision) take(answers []advice) {
	for i, a := range answers {
		switch {
		case i == 0:
			one.Verdict, one.Text = a.Verdict, a.Text
		case a.Verdict == adviceDo:
			one.Text += "; " + a.Text
		default:
			continue
		}
		one.Do = append(one.Do, a.Do...)
		one.Evidence = append(one.Evidence, a.Evidence...)
		if a.Effect != nil && a.Effect.N > 0 && a.Unit == "" && one.Because == "" && (a.Verdict == adviceDo || a.Verdict == adviceUndecided) {
			one.Because = effectText(*a.Effect)
		}
	}
}

// measure returns the command whose measurements the first rule of the question needs.
func (q question) measure() string {
	for _, r := range rules {
		if r.id == q.rules[0] {
			return r.measure
		}
	}
	return ""
}

// mostBars is the largest number of bars in the chart of a decision.
const mostBars = 4

// peers returns the bars for a question, and a text that names the measurement that all of them show. There is a bar
// for the subject of the library, for the most similar primitive of the host, and for the best primitive of each family
// of the host. The measurement is the first one that has both the subject and a similar primitive.
func (q question) peers(d *Document) (setting string, bars []peerBar) {
	if q.scenario == "" {
		return "", nil
	}
	var ours, like *Cell
	cells := d.find(q.scenario, by(q.subject))
	slices.SortStableFunc(cells, func(a, b *Cell) int {
		if order := onOneCore(a) - onOneCore(b); order != 0 || !q.crowd {
			return order
		}
		return b.workers() - a.workers()
	})
	for _, c := range cells {
		for _, name := range q.alike {
			if p := d.find(q.scenario, by(name), alike(c)); len(p) > 0 && like == nil {
				ours, like = c, p[0]
			}
		}
	}
	if ours == nil {
		return "", nil
	}
	cells = []*Cell{ours, like}
	roles := []string{"", "most alike"}
	for _, family := range []struct{ prefix, role string }{{"c:", "best in C"}, {"go:", "best in Go"}, {"in-process:", "best in one process"}} {
		top := best(d.find(q.scenario, alike(ours), func(c *Cell) bool { return strings.HasPrefix(c.Subject, family.prefix) }), ours.Unit)
		if top == like && top != nil {
			roles[1] += ", and " + family.role
		} else if top != nil && len(cells) < mostBars {
			cells, roles = append(cells, top), append(roles, family.role)
		}
	}
	return ours.label(), barsOf(ours, cells, roles)
}

// onOneCore returns 0 for a cell whose processes are pinned to different cores, and 1 for any other cell. The function
// peers prefers cells with 0, because they say more about a choice.
func onOneCore(c *Cell) int {
	if place := c.Params["place"]; place == bench.PlaceSame || place == bench.PlaceAny || c.class().Base() == topology.SMT {
		return 1
	}
	return 0
}

// barsOf returns a bar for each cell. The first cell is the parameter ours, a cell of the library. Each other bar also
// shows how many times better the library is.
func barsOf(ours *Cell, cells []*Cell, roles []string) (bars []peerBar) {
	hi := 0.0
	for _, c := range cells {
		hi = max(hi, stats.Summarize(c.Values(ours.Unit)).Hi)
	}
	scale := barScale{hi: hi}
	for i, c := range cells {
		v := stats.Summarize(c.Values(ours.Unit))
		b := peerBar{Role: roles[i], htmlBar: htmlBar{Name: c.Subject, Ours: c.ours(), Color: styleOf(c.Subject).color, Value: formatMetric(ours.Unit, v.Center) + perSecond(ours.Unit),
			Range: formatMetric(ours.Unit, v.Lo) + " to " + formatMetric(ours.Unit, v.Hi),
			Width: scale.at(v.Center), Lo: scale.at(v.Lo), Span: scale.at(v.Hi) - scale.at(v.Lo)}}
		if q, err := gain(ours, c, ours.Unit); err == nil && q.N > 0 && i > 0 {
			b.Ratio = formatInterval(q)
		} else if i > 0 { // no undisturbed round has both figures: use all rounds
			b.Ratio = formatRatio(timesBetter(ours, c))
		}
		bars = append(bars, b)
	}
	return bars
}

// perSecond returns "/s" if the metric is a rate, because formatMetric omits this unit. For other metrics it returns an
// empty string.
func perSecond(metric string) string {
	if metric == "ops/s" {
		return "/s"
	}
	return ""
}

// timesBetter returns how many times better the median of the cell a is than the median of the cell b.
func timesBetter(a, b *Cell) float64 {
	x, y := stats.Median(b.Values(a.Unit)), stats.Median(a.Values(a.Unit))
	if bench.BetterHigher[a.Unit] {
		x, y = y, x
	}
	return x / y
}

// label describes a measurement in words.
func (c *Cell) label() string {
	sc := bench.ScenarioByName(c.Scenario)
	text := glanceName(c.Scenario, c.Params)
	if place := c.Params["place"]; place != "" && !strings.Contains(text, place) {
		text += ", " + place
	}
	if sc == nil {
		return text
	}
	return fmt.Sprintf("%s: %s, %s", text, c.Unit, better(sc))
}

// summary returns the line of a decision that says how many times better the library is than each primitive of the
// host.
func (one *decision) summary() string {
	if len(one.Bars) == 0 {
		return ""
	}
	var parts []string
	for _, b := range one.Bars[1:] {
		ratio, _, _ := strings.Cut(b.Ratio, " ")
		parts = append(parts, fmt.Sprintf("%s× as good as %s", ratio, b.Name))
	}
	return fmt.Sprintf("%s %s: %s", one.Bars[0].Name, one.Bars[0].Value, strings.Join(parts, ", "))
}

//go:build linux

package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// adviceLevel is the probability that a file without any effect above the least one gets any advice.
const adviceLevel = 0.05

// mostContrasts is the most contrasts on which advice may rest. With many more, twelve rounds could not show
// anything. The default plan has at most half as many.
const mostContrasts = 120

// contrast compares one choice with one or several others. Rules select contrasts by the names and parameters of
// cells, never by their values. Thus the correction for the number of contrasts also covers that a rule picks the
// best choice.
type contrast struct {
	name         string
	better       *Cell   // the choice that may be better
	worse        *Cell   // the choice with which it is compared, or one of several such choices
	at, from     int     // indices of better and worse in a line of cells
	of           any     // other data of the rule
	least        float64 // the least effect that matters
	stats.Effect         // how many times better the choice is; with several comparisons, the smallest of these effects
	q            float64 // the p value of the effect, corrected for all contrasts of the document
	level        float64 // the effect is sure if q is below this level
	family       int     // the number of contrasts for which q is corrected
}

// against adds a comparison to a contrast: it divides the figures in worse by those in better, round by round.
// For both, a smaller figure is better. A contrast with several comparisons is as sure as the least sure of
// them.
func (c *contrast) against(worse, better map[int]float64) {
	e, err := stats.Paired(ratios(worse, better), c.least)
	if err != nil {
		e = stats.Effect{P: 1}
	}
	if c.Kind == "" && c.P == 0 { // the first
		c.Effect = e
		return
	}
	p := max(c.P, e.P)
	if e.N == 0 || c.N > 0 && e.Center < c.Center {
		c.Effect = e
	}
	c.P = p
}

// contrastOf returns the contrast of two cells.
func contrastOf(name string, better, worse *Cell, metric string, least float64) *contrast {
	c := &contrast{name: name, better: better, worse: worse, least: least}
	x, y := worse.byRound(metric), better.byRound(metric)
	if bench.BetterHigher[metric] {
		x, y = y, x
	}
	c.against(x, y)
	return c
}

// sure reports whether the effect exceeds the least one, even after the correction for all contrasts of the document.
func (c *contrast) sure() bool { return c.N > 0 && c.q < c.level }

// open reports whether the effect may exceed the least one, but is not sure to do so.
func (c *contrast) open() bool {
	return !c.sure() && (c.N == 0 || c.Hi >= c.least || c.Kind == stats.KindRange)
}

// ratios divides x by y, in the rounds that have both.
func ratios(x, y map[int]float64) (rs []float64) {
	for _, i := range slices.Sorted(maps.Keys(x)) {
		if v, ok := y[i]; ok && v != 0 {
			rs = append(rs, x[i]/v)
		}
	}
	return rs
}

// contrasts returns the contrasts of each rule. It tests the contrasts of all rules together. A rule gets none if its
// contrasts would bring the total above mostContrasts.
func (d *Document) contrasts() map[string][]*contrast {
	all := map[string][]*contrast{}
	var list []*contrast
	for _, r := range rules {
		if r.list == nil {
			continue
		}
		own := r.list(d)
		if len(list)+len(own) > mostContrasts {
			continue
		}
		all[r.id] = own
		list = append(list, own...)
	}
	correct(list, adviceLevel)
	if d.Rounds.few() != "" {
		for _, c := range list {
			c.q = 1
		}
	}
	return all
}

// Rounds counts the rounds of a suite. A suite repeats rounds that other programs disturbed.
type Rounds struct {
	Planned int `json:"planned"`
	Made    int `json:"made"`
	Dirty   int `json:"dirty"` // number of disturbed rounds among those that were made
}

// few says that fewer clean rounds than planned are left, because others were dirty. It returns an empty string if
// there are enough.
func (r *Rounds) few() string {
	if r == nil || r.Dirty == 0 || r.Made-r.Dirty >= r.Planned {
		return ""
	}
	return fmt.Sprintf("other programs disturbed %d of %d rounds, and %d clean ones are needed", r.Dirty, r.Made, r.Planned)
}

// correct sets the corrected p values of the contrasts in list.
func correct(list []*contrast, level float64) {
	ps := make([]float64, len(list))
	for i, c := range list {
		ps[i] = c.P
	}
	for i, q := range stats.Holm(ps) {
		list[i].q, list[i].level, list[i].family = q, level, len(list)
	}
}

// undecided takes the open contrast with the smallest p value, and says how many rounds would decide it. It returns
// an empty string if no contrast is open.
func undecided(list []*contrast) (text string, rounds int) {
	var top *contrast
	for _, c := range list {
		if c.open() && (top == nil || c.P < top.P) {
			top = c
		}
	}
	if top == nil {
		return "", 0
	}
	rounds = top.Needs(top.level / float64(top.family))
	if rounds == 0 {
		return "the effect is about as large as the least one that matters, and more rounds will not tell", 0
	}
	return fmt.Sprintf("needs about %d rounds", rounds), rounds
}

// pick returns the contrast with a name, or nil.
func pick(list []*contrast, name string) *contrast {
	if i := slices.IndexFunc(list, func(c *contrast) bool { return c.name == name }); i >= 0 {
		return list[i]
	}
	return nil
}

// knees returns contrasts of each cell of a line with each cell before it.
func knees(line []*Cell, metric string, least float64) (list []*contrast) {
	for i := range line {
		for k := range i {
			c := contrastOf(line[i].Key+" "+line[k].Key, line[i], line[k], metric, least)
			c.at, c.from = i, k
			list = append(list, c)
		}
	}
	return list
}

// knee walks along a line of cells. Whenever a cell is surely better than the last knee, that cell becomes the knee.
// It returns the index of the final knee.
func knee(line []*Cell, list []*contrast) (at int) {
	for i := range line {
		if c := between(line, list, i, at); c != nil && c.sure() {
			at = i
		}
	}
	return at
}

// between returns the contrast of two cells of a line.
func between(line []*Cell, list []*contrast, at, from int) *contrast {
	return pick(list, line[at].Key+" "+line[from].Key)
}

// borders compares each class of CPUs with all nearer classes. A class is a border if it costs more than each nearer
// one.
func borders(cells []*Cell, metric string, least float64) (list []*contrast) {
	for i := 1; i < len(cells); i++ {
		c := &contrast{name: cells[i].Key, better: cells[i-1], worse: cells[i], least: least}
		for _, near := range cells[:i] {
			c.against(cells[i].byRound(metric), near.byRound(metric))
		}
		list = append(list, c)
	}
	return list
}

// effectOf returns the effect of a contrast, for a report.
func (c *contrast) effectOf() *stats.Interval {
	q := c.Interval
	return &q
}

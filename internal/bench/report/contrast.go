//go:build linux

package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// adviceLevel is the largest allowed probability that a file leads to false advice. Advice is false if the true effect
// of the recommended choice is too small to matter.
const adviceLevel = 0.05

// mostContrasts is the largest number of contrasts, that is, of comparisons on which advice rests. The p values are
// corrected for the number of contrasts. After a correction for many more contrasts, the twelve rounds of a suite could
// not prove even a large effect. The default plan has at most half as many.
const mostContrasts = 120

// contrast compares one choice with one or several others, as a basis for advice. A rule selects its contrasts by the
// names and parameters of cells. It must not select them by figures, because then the correction for the number of
// contrasts would be wrong.
type contrast struct {
	name         string
	better       *Cell   // the choice that may be better
	worse        *Cell   // the choice with which it is compared, or one of several such choices
	at, from     int     // for a contrast of the function knees: the indices of better and worse in its list
	of           any     // data of the rule that made the contrast, or nil
	least        float64 // the least effect that matters
	stats.Effect         // how many times better the choice is; for several comparisons, the smallest effect
	q            float64 // the p value of the effect, corrected for all comparisons of the document
	level        float64 // the effect is proven if q is below this level
	family       int     // the number of comparisons for which q is corrected
}

// against adds a comparison to a contrast. In each round, the effect is the figure of the worse choice divided by the
// figure of the better choice, so smaller figures must be better. A contrast with several comparisons keeps the
// smallest effect and the largest p value.
func (c *contrast) against(worse, better map[int]float64) {
	e, err := stats.Paired(ratios(worse, better), c.least)
	if err != nil {
		e = stats.Effect{P: 1}
	}
	if c.Kind == "" && c.P == 0 { // the first comparison
		c.Effect = e
		return
	}
	p := max(c.P, e.P)
	if e.N == 0 || c.N > 0 && e.Center < c.Center {
		c.Effect = e
	}
	c.P = p
}

// contrastOf returns the contrast, that is, the comparison, of two cells in a metric.
func contrastOf(name string, better, worse *Cell, metric string, least float64) *contrast {
	c := &contrast{name: name, better: better, worse: worse, least: least}
	x, y := worse.byRound(metric), better.byRound(metric)
	if bench.BetterHigher[metric] {
		x, y = y, x
	}
	c.against(x, y)
	return c
}

// sure reports whether the effect is proven to exceed the least effect that matters, even after the correction for
// all comparisons of the document.
func (c *contrast) sure() bool { return c.N > 0 && c.q < c.level }

// open reports whether the effect may exceed the least effect that matters, although nothing proves that it does.
func (c *contrast) open() bool {
	return !c.sure() && (c.N == 0 || c.Hi >= c.least || c.Kind == stats.KindRange)
}

// ratios returns x divided by y for each round in which both have a value.
func ratios(x, y map[int]float64) (rs []float64) {
	for _, i := range slices.Sorted(maps.Keys(x)) {
		if v, ok := y[i]; ok && v != 0 {
			rs = append(rs, x[i]/v)
		}
	}
	return rs
}

// contrasts returns the contrasts, that is, the comparisons, of each rule. It corrects the p values for the contrasts
// of all rules together. It omits all contrasts of a rule that would bring the total above mostContrasts.
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

// few returns a text if other programs disturbed so many rounds that fewer undisturbed rounds than planned are left.
// Otherwise it returns an empty string.
func (r *Rounds) few() string {
	if r == nil || r.Dirty == 0 || r.Made-r.Dirty >= r.Planned {
		return ""
	}
	return fmt.Sprintf("other programs disturbed %d of %d rounds, and %d clean ones are needed", r.Dirty, r.Made, r.Planned)
}

// correct corrects the p values of the contrasts in list for the number of contrasts. It sets two fields of each
// contrast: q to the corrected p value, and level to the limit below which q proves the effect.
func correct(list []*contrast, level float64) {
	ps := make([]float64, len(list))
	for i, c := range list {
		ps[i] = c.P
	}
	for i, q := range stats.Holm(ps) {
		list[i].q, list[i].level, list[i].family = q, level, len(list)
	}
}

// undecided selects the comparisons whose effect may matter but is not proven. For the one with the smallest p value,
// it says how many rounds would decide whether the effect matters. It returns an empty text if there is no such
// comparison.
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

// pick returns the contrast in list, that is, the comparison, that has the given name, or nil.
func pick(list []*contrast, name string) *contrast {
	if i := slices.IndexFunc(list, func(c *contrast) bool { return c.name == name }); i >= 0 {
		return list[i]
	}
	return nil
}

// knees compares each cell of a list with each earlier cell, and returns these comparisons.
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

// knee walks along a list of cells, from the first one, and keeps the best cell so far. A later cell takes its place
// only if it is proven to be better. knee returns the index of the cell that is kept at the end.
func knee(line []*Cell, list []*contrast) (at int) {
	for i := range line {
		if c := between(line, list, i, at); c != nil && c.sure() {
			at = i
		}
	}
	return at
}

// between returns the comparison of two cells, given by their indices in line. The parameter list is the result of the
// function knees for line.
func between(line []*Cell, list []*contrast, at, from int) *contrast {
	return pick(list, line[at].Key+" "+line[from].Key)
}

// borders compares the cost of each class of pairs of CPUs with the cost of all nearer classes. The parameter cells has
// one cell for each class, the nearest class first. The result has a contrast for each class but the nearest.
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

// effectOf returns a copy of the interval of the effect, for a report.
func (c *contrast) effectOf() *stats.Interval {
	q := c.Interval
	return &q
}

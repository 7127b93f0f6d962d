//go:build linux

package bars

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/bench/subjects"
)

// Pick returns the bars for which the name, the subject or the peer matches a regular expression.
func Pick(only string) ([]Bar, error) {
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	var picked []Bar
	for _, b := range bars {
		if re.MatchString(b.Name) || re.MatchString(b.Subject) || re.MatchString(b.Peer) {
			picked = append(picked, b)
		}
	}
	if len(picked) == 0 {
		return nil, fmt.Errorf("--only %q: no bar matches", only)
	}
	return picked, nil
}

// Cells returns the measurements that the picked bars need, for their subjects and their peers, each measurement once.
func Cells(picked []Bar, o *plan.Options) []*bench.Cell {
	var cells []*bench.Cell
	have := map[string]bool{}
	for _, b := range picked {
		for _, side := range []func(*plan.Options) (*bench.Cell, error){b.subjectCell, b.peerCell} {
			c, err := side(o)
			if err == nil && !have[c.Key()] {
				have[c.Key()] = true
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// Judge checks whether the results pass the picked bars, that is, promises about speed. It reports whether any bar
// failed.
func Judge(picked []Bar, results []*bench.Result, o *plan.Options) (verdicts []Result, failed bool) {
	for _, b := range picked {
		v := b.judge(results, o)
		failed = failed || v.Verdict == VerdictFail
		verdicts = append(verdicts, v)
	}
	return verdicts, failed
}

// subjectCell returns the cell, that is, the measurement, of the subject to which the bar applies.
func (b *Bar) subjectCell(o *plan.Options) (*bench.Cell, error) { return b.cell(b.Subject, b.Cell, o) }

// peerCell returns the cell, that is, the measurement, of the peer with which the bar compares its subject.
func (b *Bar) peerCell(o *plan.Options) (*bench.Cell, error) {
	if b.PeerCell != nil {
		return b.cell(b.Peer, *b.PeerCell, o)
	}
	return b.cell(b.Peer, b.Cell, o)
}

func (b *Bar) cell(name string, c bench.Cell, o *plan.Options) (*bench.Cell, error) {
	s, err := subjects.Find(name)
	if err != nil {
		return nil, err
	}
	c.Scenario, c.Subject = bench.ScenarioByName(b.Scenario), s
	c.Gap, c.Warmup = o.Gap, o.Warmup
	if c.Time == 0 {
		c.Time = o.Time
	}
	switch {
	case b.Scenario == "crash":
		c.N = o.Kills
	case len(o.Waiters) > 0 && c.N > 0:
		c.N = o.Waiters[0]
	}
	c.Skip = c.Check(o.CPUs)
	return &c, nil
}

// judge compares the results with the limit of the bar and returns the verdict.
func (b *Bar) judge(results []*bench.Result, o *plan.Options) Result {
	sc := bench.ScenarioByName(b.Scenario)
	metric := b.Metric
	if metric == "" {
		metric = sc.Unit
	}
	v := Result{Name: b.Name, Metric: metric, Subject: b.Subject, Peer: b.Peer, Limit: b.Limit,
		AtLeast: bench.BetterHigher[metric], Verdict: VerdictPending}
	if b.Pooled > 0 {
		v.Metric = fmt.Sprintf("p%v-ns", b.Pooled*100)
	}
	if b.Needs != nil {
		if err := b.Needs.Check(); err != nil {
			v.Reason = err.Error()
			return v
		}
	}
	subject := find(results, o, b.subjectCell, &v, VerdictFail)
	peer := subject
	if b.Peer != "" && subject != nil {
		group := v.Cell
		peer = find(results, o, b.peerCell, &v, VerdictPending)
		v.Cell, v.Other = group, otherThan(group, v.Cell)
	}
	if subject == nil || peer == nil {
		return v
	}
	value, err := b.measure(subject, peer, metric, o)
	if err != nil {
		v.Reason = err.Error()
		return v
	}
	v.Value = &value
	if b.Note != "" {
		v.Note = fmt.Sprintf("%s %.2f, of the peer %.2f", b.Note, stats.Median(subject.Values(b.Note)), stats.Median(peer.Values(b.Note)))
	}
	switch {
	case b.Limit == 0 && !b.AtZero:
		v.Verdict = VerdictShown
	case b.Least > int(subject.Pooled().TotalCount()):
		v.Verdict, v.Reason = VerdictOpen, fmt.Sprintf("fewer than %d samples", b.Least)
	case b.Peer != "" && value.Kind == stats.KindRange:
		v.Verdict, v.Reason = VerdictOpen, fmt.Sprintf("%d rounds have no interval of 95 %%: take %d", value.N, stats.EnoughRounds((1-stats.Confidence)/2))
	default:
		v.Verdict = verdict(value, b.Limit, v.AtLeast)
	}
	return v
}

// find returns the result of one of the two cells of the bar, or nil if there is no valid result. The parameter side is
// the method that returns the cell: subjectCell or peerCell. If the cell hung or crashed, or its subject broke a
// promise, find sets the verdict to the value of the parameter bad.
func find(results []*bench.Result, o *plan.Options, side func(*plan.Options) (*bench.Cell, error), v *Result, bad string) *bench.Result {
	c, err := side(o)
	if err != nil {
		v.Reason = err.Error()
		return nil
	}
	v.Cell = c.Group()
	for _, res := range results {
		if res.Cell.Key() != c.Key() {
			continue
		}
		status, reason := res.Status()
		if status == bench.StatusOK {
			return res
		}
		v.Reason = fmt.Sprintf("%s: %s: %s", c.Subject.Name(), status, reason)
		if status != bench.StatusSkipped {
			v.Verdict = bad
		}
	}
	return nil
}

// otherThan compares two lists of parameters, which are texts with slashes between the parameters. It returns the
// parameters that are only in the second list.
func otherThan(group, other string) string {
	known := strings.Split(group, "/")
	return strings.Join(slices.DeleteFunc(strings.Split(other, "/"), func(p string) bool { return slices.Contains(known, p) }), " ")
}

// measure returns the figure that the bar limits, with its interval.
func (b *Bar) measure(subject, peer *bench.Result, metric string, o *plan.Options) (stats.Interval, error) {
	switch {
	case b.Peer == "" && b.Pooled > 0:
		return stats.QuantileInterval(subject.Pooled(), b.Pooled, o.Seed)
	case b.Peer == "":
		return stats.RatioInterval(subject.Values(metric))
	case b.Pooled > 0:
		return stats.QuantileRatio(subject.Pooled(), peer.Pooled(), b.Pooled, o.Seed)
	}
	e, err := stats.Paired(bench.Ratios(subject, peer, metric), 1)
	return e.Interval, err
}

// verdict compares an interval with the limit. It returns pass or fail if the whole interval is on one side of the
// limit, and open if the limit lies inside the interval.
func verdict(r stats.Interval, limit float64, atLeast bool) string {
	best, worst := r.Lo, r.Hi
	if atLeast { // negate all values, so that less is better
		best, worst, limit = -r.Hi, -r.Lo, -limit
	}
	switch {
	case math.IsNaN(r.Center):
		return VerdictPending
	case worst <= limit:
		return VerdictPass
	case best <= limit:
		return VerdictOpen
	}
	return VerdictFail
}

//go:build linux

package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
)

// bar is one promise of the project about speed: a metric of a subject, as a
// ratio to that of a peer in the same run or by itself, must not pass a limit.
type bar struct {
	Name     string
	Scenario string
	Subject  string
	Peer     string  // empty: the figure itself is held against the limit
	Cell     cell    // the parameters of both
	PeerCell *cell   // the parameters of the peer, where they are others
	Metric   string  // the scenario's own when empty
	Limit    float64 // at most, or at least where more is better; 0: for information
	AtZero   bool    // the limit is 0
	Pooled   float64 // take this quantile of all repetitions' samples instead
	Least    int     // fewer operations than this, in all, do not decide
	Note     string  // a metric that is shown for both
	Needs    *shmsync.Feature
}

// barResult is a bar held against a run.
type barResult struct {
	Name    string    `json:"name"`
	Cell    string    `json:"cell"`
	Metric  string    `json:"metric"`
	Subject string    `json:"subject"`
	Peer    string    `json:"peer,omitempty"`  // empty: Value is no ratio
	Other   string    `json:"other,omitempty"` // in what the peer's cell is another than the subject's
	Limit   float64   `json:"limit"`
	AtLeast bool      `json:"at_least,omitempty"`
	Value   *interval `json:"value,omitempty"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
	Note    string    `json:"note,omitempty"`
}

// Verdicts. A bar is open when the limit lies inside the interval and the
// median on its wrong side, and when there are too few samples to tell. It is
// pending when it could not be measured.
const (
	verdictPass    = "pass"
	verdictFail    = "fail"
	verdictOpen    = "open"
	verdictPending = "pending"
	verdictShown   = "shown"
)

type barsCmd struct {
	Only string `placeholder:"REGEXP" help:"Only the bars whose name, subject or peer matches."`
}

// barsDefaults make ten repetitions, or what is asked for, and as many kills in
// each as the table needs in all.
func barsDefaults(count int) defaults {
	if count <= 0 {
		count = 10
	}
	return defaults{250 * time.Millisecond, 40 * time.Millisecond, count, (barKills + count - 1) / count}
}

// Run measures the cells of the bars and judges them.
func (c *barsCmd) Run(s *session) error {
	o, err := s.common.options(barsDefaults(s.common.Count))
	if err != nil {
		return err
	}
	picked, err := pickBars(c.Only)
	if err != nil {
		return err
	}
	var cells []*cell
	have := map[string]bool{}
	for _, b := range picked {
		for _, side := range []func(*options) (*cell, error){b.subjectCell, b.peerCell} {
			c, err := side(o)
			if err == nil && !have[c.key()] {
				have[c.key()] = true
				cells = append(cells, c)
			}
		}
	}
	var failed bool
	err = s.execute(o, cells, func(r *report) {
		for _, b := range picked {
			v := b.judge(r, o)
			failed = failed || v.Verdict == verdictFail
			r.Bars = append(r.Bars, v)
		}
	})
	if err == nil && failed {
		return status(exitUsage)
	}
	return err
}

// pickBars gives the bars that a regular expression selects.
func pickBars(only string) ([]bar, error) {
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	var picked []bar
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

// subjectCell is the cell of the bar's subject.
func (b *bar) subjectCell(o *options) (*cell, error) { return b.cell(b.Subject, b.Cell, o) }

// peerCell is the cell of the bar's peer.
func (b *bar) peerCell(o *options) (*cell, error) {
	if b.PeerCell != nil {
		return b.cell(b.Peer, *b.PeerCell, o)
	}
	return b.cell(b.Peer, b.Cell, o)
}

func (b *bar) cell(name string, c cell, o *options) (*cell, error) {
	s, err := findSubject(name)
	if err != nil {
		return nil, err
	}
	c.Scenario, c.Subject = scenarioByName(b.Scenario), s
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
	c.Skip = c.check(o.CPUs)
	return &c, nil
}

// judge holds the bar against the results.
func (b *bar) judge(r *report, o *options) barResult {
	sc := scenarioByName(b.Scenario)
	metric := b.Metric
	if metric == "" {
		metric = sc.unit
	}
	v := barResult{Name: b.Name, Metric: metric, Subject: b.Subject, Peer: b.Peer, Limit: b.Limit,
		AtLeast: betterHigher[metric], Verdict: verdictPending}
	if b.Pooled > 0 {
		v.Metric = fmt.Sprintf("p%v-ns", b.Pooled*100)
	}
	if b.Needs != nil {
		if err := b.Needs.Check(); err != nil {
			v.Reason = err.Error()
			return v
		}
	}
	subject := find(r, o, b.subjectCell, &v, verdictFail)
	peer := subject
	if b.Peer != "" && subject != nil {
		group := v.Cell
		peer = find(r, o, b.peerCell, &v, verdictPending)
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
		v.Note = fmt.Sprintf("%s %.2f, of the peer %.2f", b.Note, median(subject.values(b.Note)), median(peer.values(b.Note)))
	}
	switch {
	case b.Limit == 0 && !b.AtZero:
		v.Verdict = verdictShown
	case b.Least > int(subject.pooled().TotalCount()):
		v.Verdict, v.Reason = verdictOpen, fmt.Sprintf("fewer than %d samples", b.Least)
	default:
		v.Verdict = verdict(value, b.Limit, v.AtLeast)
	}
	return v
}

// find gives the result of one side's cell. A subject that broke its promise,
// hung or crashed fails the bar; a peer that did leaves it pending.
func find(r *report, o *options, side func(*options) (*cell, error), v *barResult, bad string) *result {
	c, err := side(o)
	if err != nil {
		v.Reason = err.Error()
		return nil
	}
	v.Cell = c.group()
	for _, res := range r.Results {
		if res.Cell.key() != c.key() {
			continue
		}
		status, reason := res.status()
		if status == statusOK {
			return res
		}
		v.Reason = fmt.Sprintf("%s: %s: %s", c.Subject.Name(), status, reason)
		if status != statusSkipped {
			v.Verdict = bad
		}
	}
	return nil
}

// otherThan lists the parameters of a group that another does not have.
func otherThan(group, other string) string {
	known := strings.Split(group, "/")
	return strings.Join(slices.DeleteFunc(strings.Split(other, "/"), func(p string) bool { return slices.Contains(known, p) }), " ")
}

// measure gives the figure that the bar is about.
func (b *bar) measure(subject, peer *result, metric string, o *options) (interval, error) {
	switch {
	case b.Peer == "" && b.Pooled > 0:
		return quantileInterval(subject.pooled(), b.Pooled, o.Seed)
	case b.Peer == "":
		return ratioInterval(subject.values(metric))
	case b.Pooled > 0:
		return quantileRatio(subject.pooled(), peer.pooled(), b.Pooled, o.Seed)
	}
	return ratioInterval(ratios(subject, peer, metric))
}

// verdict says whether a figure keeps within the limit.
func verdict(r interval, limit float64, atLeast bool) string {
	center, better := r.Center, r.Lo
	if atLeast { // mirrored, so that less is better
		center, better, limit = -center, -r.Hi, -limit
	}
	switch {
	case math.IsNaN(center):
		return verdictPending
	case center <= limit:
		return verdictPass
	case better <= limit:
		return verdictOpen
	}
	return verdictFail
}

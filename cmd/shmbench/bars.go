//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"time"
)

// bar is one promise of the project about speed: a metric of a subject, as a
// ratio to that of a peer in the same run, must not pass a limit.
type bar struct {
	Name     string
	Scenario string
	Subject  string
	Peer     string
	Cell     cell    // the parameters of both
	Metric   string  // the scenario's own when empty
	Limit    float64 // at most, or at least where more is better
	Pooled   float64 // compare this quantile of all repetitions' samples instead
}

// bars is the project's table. Rows whose subject is not in this build are
// pending; their peers run all the same.
var bars = barTable()

func barTable() []bar {
	const ns100 = 100 * time.Nanosecond
	one := cell{Place: placeSame, Procs: 1, Threads: 1}
	pair := func(place string, hog int) cell { return cell{Place: place, Procs: 2, Threads: 1, Hog: hog} }
	lock := func(threads int, work time.Duration) cell {
		return cell{Place: placeCross, Procs: 2, Threads: threads, CS: work, Think: work}
	}
	kill := cell{Place: placeCross, Procs: 1, Threads: 1}
	wait := cell{Place: placeAny, Procs: 1, Threads: 1, N: 1000}
	const mutex, futex = "shmsync:mutex", "shmsync:futex"
	return []bar{
		{Name: "uncontended pair", Scenario: "uncontended", Subject: mutex, Peer: "in-process:sync.Mutex", Cell: one, Limit: 1},
		{Name: "uncontended pair", Scenario: "uncontended", Subject: mutex, Peer: "c:pthread", Cell: one, Limit: 1},
		{Name: "uncontended pair", Scenario: "uncontended", Subject: mutex, Peer: "c:robust", Cell: one, Limit: 1},
		{Name: "round trip, two CPUs", Scenario: "handoff", Subject: futex, Peer: "c:cond", Cell: pair(placeCross, 0), Limit: 1},
		{Name: "round trip, two CPUs", Scenario: "handoff", Subject: futex, Peer: "c:futex", Cell: pair(placeCross, 0), Limit: 1},
		{Name: "round trip, two CPUs", Scenario: "handoff", Subject: futex, Peer: "c:futex-spin1000", Cell: pair(placeCross, 0), Limit: 2},
		{Name: "round trip, one CPU", Scenario: "handoff", Subject: futex, Peer: "c:futex", Cell: pair(placeSame, 0), Limit: 2},
		{Name: "round trip, one CPU", Scenario: "handoff", Subject: futex, Peer: "c:cond", Cell: pair(placeSame, 0), Limit: 1},
		{Name: "round trip, one CPU and a hog", Scenario: "handoff", Subject: futex, Peer: "c:futex", Cell: pair(placeSame, 1), Limit: 2},
		{Name: "round trip, one CPU and a hog", Scenario: "handoff", Subject: futex, Peer: "c:cond", Cell: pair(placeSame, 1), Limit: 1.5},
		{Name: "one-way wake, two CPUs", Scenario: "wake", Subject: futex, Peer: "c:futex", Cell: pair(placeCross, 0), Limit: 1.25},
		{Name: "contended, 2×1, 100ns/100ns", Scenario: "lock", Subject: mutex, Peer: "c:robust", Cell: lock(1, ns100), Limit: 1},
		{Name: "contended, 2×8, 100ns/100ns", Scenario: "lock", Subject: mutex, Peer: "c:robust", Cell: lock(8, ns100), Limit: 1},
		{Name: "contended, 2×1, 0/0", Scenario: "lock", Subject: mutex, Peer: "c:robust", Cell: lock(1, 0), Limit: 1},
		{Name: "contended, 2×8, 0/0", Scenario: "lock", Subject: mutex, Peer: "c:robust", Cell: lock(8, 0), Limit: 1},
		{Name: "kill to next owner, p50", Scenario: "crash", Subject: mutex, Peer: "c:robust", Cell: kill, Limit: 2},
		{Name: "kill to next owner, p99", Scenario: "crash", Subject: mutex, Peer: "c:robust", Cell: kill, Limit: 2, Pooled: 0.99},
		{Name: "kill to next owner, p50", Scenario: "crash", Subject: mutex, Peer: "go:waitv-floor", Cell: kill, Limit: 1.5},
		{Name: "kill to next owner, p99", Scenario: "crash", Subject: mutex, Peer: "go:waitv-floor", Cell: kill, Limit: 1.5, Pooled: 0.99},
		{Name: "bytes per waiter", Scenario: "waiters", Subject: mutex, Peer: "go:futex", Cell: wait, Limit: 0.5},
		{Name: "threads per waiter", Scenario: "waiters", Subject: mutex, Peer: "go:futex", Cell: wait, Metric: "threads/waiter", Limit: 0.1},
	}
}

// barResult is a bar held against a run.
type barResult struct {
	Name    string    `json:"name"`
	Cell    string    `json:"cell"`
	Metric  string    `json:"metric"`
	Subject string    `json:"subject"`
	Peer    string    `json:"peer"`
	Limit   float64   `json:"limit"`
	AtLeast bool      `json:"at_least,omitempty"`
	Ratio   *interval `json:"ratio,omitempty"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
}

// Verdicts. A bar is open when the limit lies inside the interval and the
// median on its wrong side.
const (
	verdictPass    = "pass"
	verdictFail    = "fail"
	verdictOpen    = "open"
	verdictPending = "pending"
)

type barsCmd struct{}

// barsDefaults make ten repetitions, and 300 kills in all.
var barsDefaults = defaults{200 * time.Millisecond, 30 * time.Millisecond, 10, 30}

// Run measures the cells of the bars and judges them.
func (barsCmd) Run(s *session) error {
	o, err := s.common.options(barsDefaults)
	if err != nil {
		return err
	}
	var cells []*cell
	have := map[string]bool{}
	for _, b := range bars {
		for _, name := range []string{b.Subject, b.Peer} {
			c, err := b.cell(name, o)
			if err == nil && !have[c.key()] {
				have[c.key()] = true
				cells = append(cells, c)
			}
		}
	}
	var failed bool
	err = s.execute(o, cells, func(r *report) {
		for _, b := range bars {
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

// cell is the bar's cell for one subject.
func (b *bar) cell(name string, o *options) (*cell, error) {
	s, err := findSubject(name)
	if err != nil {
		return nil, err
	}
	c := b.Cell
	c.Scenario, c.Subject = scenarioByName(b.Scenario), s
	c.Gap, c.Warmup, c.Time = o.Gap, o.Warmup, o.Time
	if b.Scenario == "crash" {
		c.N = o.Kills
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
	find := func(name string) *result {
		c, err := b.cell(name, o)
		if err != nil {
			v.Reason = err.Error()
			return nil
		}
		v.Cell = c.group()
		for _, res := range r.Results {
			if res.Cell.key() == c.key() {
				if status, reason := res.status(); status != statusOK {
					v.Reason = fmt.Sprintf("%s: %s: %s", name, status, reason)
					return nil
				}
				return res
			}
		}
		return nil
	}
	peer, subject := find(b.Peer), find(b.Subject)
	if subject == nil || peer == nil {
		return v
	}
	ratio, err := ratioInterval(ratios(subject, peer, metric))
	if b.Pooled > 0 {
		v.Metric = fmt.Sprintf("p%v-ns", b.Pooled*100)
		ratio, err = quantileRatio(subject.pooled(), peer.pooled(), b.Pooled, o.Seed)
	}
	if err != nil {
		v.Reason = err.Error()
		return v
	}
	v.Ratio = &ratio
	v.Verdict = verdict(ratio, b.Limit, v.AtLeast)
	return v
}

// verdict says whether a ratio keeps within the limit.
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

func writeBars(w io.Writer, results []barResult) {
	fmt.Fprintln(w)
	rows := [][]string{{"bar", "peer", "ratio", "[interval]", "limit", "n", "verdict"}}
	for _, b := range results {
		limit := fmt.Sprintf("≤ %.2f", b.Limit)
		if b.AtLeast {
			limit = fmt.Sprintf("≥ %.2f", b.Limit)
		}
		row := []string{b.Name, b.Peer, "-", "-", limit, "-", b.Verdict}
		if b.Ratio != nil {
			row[2] = formatRatio(b.Ratio.Center)
			row[3] = fmt.Sprintf("[%s..%s]", formatRatio(b.Ratio.Lo), formatRatio(b.Ratio.Hi))
			row[5] = fmt.Sprint(b.Ratio.N)
		}
		rows = append(rows, row)
	}
	writeRows(w, rows)
}

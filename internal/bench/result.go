//go:build linux

package bench

import (
	"fmt"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// These are the outcomes of a measurement, or of one of its repetitions.
const (
	StatusOK        = "ok"
	StatusSkipped   = "skipped"
	StatusHung      = "hung"
	StatusCrashed   = "crashed"
	StatusViolation = "violation"
)

// Repetition is the result of one run of a measurement.
type Repetition struct {
	Status  string
	Reason  string
	Metrics map[string]float64
	Hist    *hdrhistogram.Histogram // histogram of the main latency, in ns times Div
	Div     float64
	Told    *hdrhistogram.Histogram // only for crash cells: ns until the survivor learned of the death; nil if the subject does not report this
	Workers []WorkerReport
	Stacks  string // stacks of hung workers
	Dirty   bool   // other programs disturbed the round of this repetition

	Placement *Placement // where the memory of a mem cell was
}

// WorkerReport is the report of one thread of a worker.
type WorkerReport struct {
	PID        int     `json:"pid"`
	CPU        int     `json:"cpu"` // -1 if unpinned
	Ops        uint64  `json:"ops"`
	Seconds    float64 `json:"seconds"`
	Voluntary  uint64  `json:"voluntary_switches"`
	Preempted  uint64  `json:"involuntary_switches"`
	UserNs     uint64  `json:"user_ns"`
	SystemNs   uint64  `json:"system_ns"`
	ItersPerNs float64 `json:"work_iters_per_ns"`
}

// Result has all repetitions of one cell, that is, of one measurement.
type Result struct {
	Cell *Cell
	Reps []*Repetition
}

// Violate records in the repetition that its subject broke a promise. It keeps only the first violation.
func (rep *Repetition) Violate(format string, args ...any) {
	if rep.Status == StatusOK || rep.Status == StatusHung {
		rep.Status, rep.Reason = StatusViolation, fmt.Sprintf(format, args...)
	}
}

// Account has the data from which a scenario derives its metrics: the control page, and figures that were derived from
// the page.
type Account struct {
	*control.Page
	Cell   *Cell
	Ops    uint64
	Ns     float64 // from the start of the first thread to the end of the last thread
	Shares []float64
}

// Sum adds up the metric with this index over all slots, that is, over all threads.
func (a *Account) Sum(metric int) (total float64) {
	for i := range a.Slots() {
		s, _ := a.Slot(i)
		total += s.Metrics[metric]
	}
	return total
}

// Total returns the number of operations of all threads, including the warm-up.
func (a *Account) Total() (total uint64) {
	for i := range a.Slots() {
		s, _ := a.Slot(i)
		total += s.Total
	}
	return total
}

// Throughput sets the throughput, the fairness and the latencies of a measurement in which all threads do the same.
func (rep *Repetition) Throughput(a *Account) {
	all := make([][]uint64, a.Slots())
	for i := range all {
		_, all[i] = a.Slot(i)
	}
	rep.Hist = stats.NewHist(all...)
	if a.Ns > 0 {
		rep.Metrics["ops/s"] = float64(a.Ops) / a.Ns * 1e9
	}
	rep.Metrics["jain"], rep.Metrics["min-share"] = fairness(a.Shares)
}

// Second sets metrics that are quantiles of the second histogram of all threads. The name of each metric consists of
// prefix, the name of the quantile, and "ns".
func (rep *Repetition) Second(prefix string, a *Account) {
	all := make([][]uint64, a.Slots())
	for i := range all {
		all[i] = a.Other(i)
	}
	h := stats.NewHist(all...)
	for _, q := range stats.Quantiles[:3] {
		if v, ok := stats.Quantile(h, q.Q, stats.TailMin); ok {
			rep.Metrics[prefix+"-"+q.Name+"-ns"] = v
		}
	}
}

// fairness returns two measures of how equal the shares of the threads are. jain is Jain's index: 1 if all shares
// are equal, and 1/n if one of n threads has everything. smallest is the smallest share divided by the mean share.
func fairness(shares []float64) (jain, smallest float64) {
	var sum, squares float64
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	if squares == 0 {
		return 0, 0
	}
	n := float64(len(shares))
	return sum * sum / (n * squares), slices.Min(shares) * n / sum
}

// Status returns the status of the worst repetition. If the measurement was skipped, it says so.
func (r *Result) Status() (status, reason string) {
	if r.Cell.Skip != "" {
		return StatusSkipped, r.Cell.Skip
	}
	status = StatusOK
	for _, worst := range []string{StatusViolation, StatusCrashed, StatusHung} {
		for _, rep := range r.Reps {
			if rep.Status == worst {
				return worst, rep.Reason
			}
		}
	}
	return status, ""
}

// Values returns the values of a metric in all repetitions that have the metric. It omits repetitions in rounds
// that other programs disturbed, unless all repetitions are disturbed.
func (r *Result) Values(metric string) []float64 {
	var vs, dirty []float64
	for _, rep := range r.Reps {
		if v, ok := rep.Metrics[metric]; ok && rep.Status == StatusOK {
			if rep.Dirty {
				dirty = append(dirty, v)
				continue
			}
			vs = append(vs, v)
		}
	}
	return Or(vs, dirty...)
}

// Metrics returns the names of all metrics that any repetition has, sorted.
func (r *Result) Metrics() []string {
	seen := map[string]bool{}
	for _, rep := range r.Reps {
		for k := range rep.Metrics {
			seen[k] = true
		}
	}
	names := make([]string, 0, len(seen))
	for k := range seen {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// Pooled returns one histogram with the samples of all repetitions.
func (r *Result) Pooled() *hdrhistogram.Histogram {
	hs := make([]*hdrhistogram.Histogram, 0, len(r.Reps))
	for _, rep := range r.Reps {
		hs = append(hs, rep.Hist)
	}
	return stats.MergeHists(hs)
}

// Ratios returns the ratio of the metric of a to that of b, for each round. The measurements of one round run shortly
// after each other, so a slow change of the host cancels out.
func Ratios(a, b *Result, metric string) []float64 {
	var rs []float64
	for i := range min(len(a.Reps), len(b.Reps)) {
		x, okx := a.Reps[i].Metrics[metric]
		y, oky := b.Reps[i].Metrics[metric]
		if okx && oky && y != 0 && a.Reps[i].Status == StatusOK && b.Reps[i].Status == StatusOK && !a.Reps[i].Dirty {
			rs = append(rs, x/y)
		}
	}
	return rs
}

//go:build linux

package bench

import (
	"fmt"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// Outcomes of a cell or of one repetition.
const (
	StatusOK        = "ok"
	StatusSkipped   = "skipped"
	StatusHung      = "hung"
	StatusCrashed   = "crashed"
	StatusViolation = "violation"
)

// Repetition is the result of one run of a cell.
type Repetition struct {
	Status  string
	Reason  string
	Metrics map[string]float64
	Hist    *hdrhistogram.Histogram // histogram of the main latency, in ns times Div
	Div     float64
	Told    *hdrhistogram.Histogram // only for crash cells: ns until the survivor learned of the death; nil if the subject does not report that
	Workers []WorkerReport
	Stacks  string // stacks of hung workers
	Dirty   bool   // something else disturbed the round of this repetition

	Placement *Placement // where the memory of a mem cell was
}

// WorkerReport is the report of one slot.
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

// Result is a cell and all its repetitions.
type Result struct {
	Cell *Cell
	Reps []*Repetition
}

// Violate marks the repetition, because its subject broke a promise. Only the first violation is kept.
func (rep *Repetition) Violate(format string, args ...any) {
	if rep.Status == StatusOK || rep.Status == StatusHung {
		rep.Status, rep.Reason = StatusViolation, fmt.Sprintf(format, args...)
	}
}

// Account has the data from which a scenario derives its metrics: the page, and figures that were derived from it.
type Account struct {
	*control.Page
	Cell   *Cell
	Ops    uint64
	Ns     float64 // from the first start of a thread to the last end
	Shares []float64
}

// Sum adds up a metric of all slots.
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

// Throughput sets the metrics of a cell whose threads all do the same.
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

// Second sets quantiles of the second histograms. The names of these metrics begin with prefix.
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

// fairness returns two measures of how equal the shares are. Jain's index is 1 if all shares are equal, and 1/n if
// one thread has everything. smallest is the smallest share divided by an equal share.
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

// Status returns the status of the worst repetition, or that the cell was skipped.
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

// Values returns the values of a metric in all repetitions that have it. It omits repetitions of dirty rounds, unless
// there are no others.
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

// Pooled returns the merged histograms of all repetitions.
func (r *Result) Pooled() *hdrhistogram.Histogram {
	hs := make([]*hdrhistogram.Histogram, 0, len(r.Reps))
	for _, rep := range r.Reps {
		hs = append(hs, rep.Hist)
	}
	return stats.MergeHists(hs)
}

// Ratios returns the ratio of a metric of two results for each round. The cells of one round run shortly after each
// other, so a drift cancels out.
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

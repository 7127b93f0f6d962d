//go:build linux

package main

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Outcomes of a cell or of one repetition.
const (
	statusOK        = "ok"
	statusSkipped   = "skipped"
	statusHung      = "hung"
	statusCrashed   = "crashed"
	statusViolation = "violation"
)

// repetition is what one run of a cell gave.
type repetition struct {
	Status  string
	Reason  string
	Metrics map[string]float64
	Hist    *hdrhistogram.Histogram // of the main latency, in ns times Div
	Div     float64
	Workers []workerReport
	Stacks  string // of hung workers

	Placement *placement // of a mem cell
}

// workerReport is one slot's account.
type workerReport struct {
	PID        int     `json:"pid"`
	CPU        int     `json:"cpu"` // -1 where unpinned
	Ops        uint64  `json:"ops"`
	Seconds    float64 `json:"seconds"`
	Voluntary  uint64  `json:"voluntary_switches"`
	Preempted  uint64  `json:"involuntary_switches"`
	UserNs     uint64  `json:"user_ns"`
	SystemNs   uint64  `json:"system_ns"`
	ItersPerNs float64 `json:"work_iters_per_ns"`
}

// result is a cell and all its repetitions.
type result struct {
	Cell *cell
	Reps []*repetition
}

// collect reads the control page after the workers have gone.
func (rep *repetition) collect(c *cell, p *page) {
	rep.Metrics, rep.Div = map[string]float64{}, 1
	var violations, total, ops, switches uint64
	var first, last int64
	var shares []float64
	for i := range p.slots() {
		s, _ := p.slot(i)
		text, _, _ := bytes.Cut(s.message[:], []byte{0})
		if n := s.violations; n > 0 {
			violations += n
			rep.violate("worker %d: %d violations, the first: %s", i, n, text)
		}
		if s.state.Load() == slotFailed && rep.Status == statusCrashed {
			rep.Reason = fmt.Sprintf("worker %d: %s", i, text)
		}
		if s.pid == 0 || c.Scenario.name == "crash" && i > 0 {
			continue
		}
		rep.Workers = append(rep.Workers, workerReport{
			PID: int(s.pid), CPU: int(s.cpu), Ops: s.ops, Seconds: float64(s.endNs-s.startNs) / 1e9,
			Voluntary: s.nvcsw, Preempted: s.nivcsw, UserNs: s.userNs, SystemNs: s.sysNs, ItersPerNs: s.itersPerNs,
		})
		total += s.total
		ops += s.ops
		switches += s.nvcsw
		shares = append(shares, float64(s.ops))
		if s.startNs != 0 && (first == 0 || s.startNs < first) {
			first = s.startNs
		}
		last = max(last, s.endNs)
	}
	if rep.Status != statusOK && rep.Status != statusViolation {
		return
	}
	switch c.Scenario.name {
	case "uncontended", "lock":
		if p.counter != total {
			rep.violate("counter under the lock is %d after %d acquisitions", p.counter, total)
		}
		rep.lines(p)
	}
	rep.measure(c, p, ops, float64(last-first), switches, shares)
}

func (rep *repetition) violate(format string, args ...any) {
	if rep.Status == statusOK || rep.Status == statusHung {
		rep.Status, rep.Reason = statusViolation, fmt.Sprintf(format, args...)
	}
}

// measure derives the metrics of a repetition that ended as it should.
func (rep *repetition) measure(c *cell, p *page, ops uint64, ns float64, switches uint64, shares []float64) {
	m := rep.Metrics
	if ops > 0 {
		m["ctxsw/op"] = float64(switches) / float64(ops)
	}
	m["n"] = float64(ops)
	slot0, hist0 := p.slot(0)
	tail := tailMin
	switch c.Scenario.name {
	case "uncontended":
		rep.Hist, rep.Div = newHist(hist0), uncontendedBatch
	case "handoff":
		rep.Hist = newHist(hist0)
		m["ctxsw/op"] *= float64(len(shares)) // of both ends, for each round trip
		if looked := slot0.metrics[metricLooked]; looked > 0 {
			m["slept"] = slot0.metrics[metricSlept] / looked
		}
	case "wake":
		_, hist1 := p.slot(1)
		rep.Hist = newHist(hist1)
		m["n"] = float64(rep.Hist.TotalCount())
		if v, ok := quantile(newHist(hist0), 0.5, tail); ok {
			m["waker-p50-ns"] = v
		}
		if slot1, _ := p.slot(1); slot1.ops > 0 { // how many really slept
			m["slept"] = min(float64(slot1.nvcsw)/float64(slot1.ops), 1)
		}
	case "lock":
		rep.handovers(p, hostPlaces())
		rep.throughput(&account{page: p, cell: c, ops: ops, ns: ns, shares: shares})
	case "crash":
		rep.Hist, tail = newHist(hist0), tailMinCrash
		if v, ok := quantile(newHist(p.other(0)), 0.5, tail); ok {
			m["passed-p50-ns"] = v
		}
		delete(m, "ctxsw/op")
	case "waiters":
		for i, name := range waitersMetrics {
			m[name] = slot0.metrics[i]
		}
		if slot0.metrics[metricCancel] == 0 {
			delete(m, "cancel-ns")
		}
		delete(m, "ctxsw/op")
	default:
		if collect := c.Scenario.collect; collect != nil {
			collect(rep, &account{page: p, cell: c, ops: ops, ns: ns, shares: shares})
			if c.Gap > 0 { // a sample for each round
				tail = tailMinCrash
			}
		}
	case "idle":
		slot1, _ := p.slot(1)
		m["cpu-ns"], m["waited-ns"] = slot1.metrics[metricCPU], slot1.metrics[metricWaited]
	}
	if rep.Hist != nil && rep.Hist.TotalCount() > 0 {
		for _, q := range quantiles {
			if v, ok := quantile(rep.Hist, q.q, tail); ok {
				m[q.name+"-ns"] = v / rep.Div
			}
		}
		m["max-ns"] = float64(rep.Hist.Max()) / rep.Div
	}
}

// account is what a scenario makes its metrics from, beside the page.
type account struct {
	*page
	cell   *cell
	ops    uint64
	ns     float64 // from the first begin to the last end
	shares []float64
}

// sum adds up a metric of all slots.
func (a *account) sum(metric int) (total float64) {
	for i := range a.slots() {
		s, _ := a.slot(i)
		total += s.metrics[metric]
	}
	return total
}

// total is how many operations all threads did, warm-up included.
func (a *account) total() (total uint64) {
	for i := range a.slots() {
		s, _ := a.slot(i)
		total += s.total
	}
	return total
}

// throughput is what cells report whose threads all do the same.
func (rep *repetition) throughput(a *account) {
	all := make([][]uint64, a.slots())
	for i := range all {
		_, all[i] = a.slot(i)
	}
	rep.Hist = newHist(all...)
	if a.ns > 0 {
		rep.Metrics["ops/s"] = float64(a.ops) / a.ns * 1e9
	}
	rep.Metrics["jain"], rep.Metrics["min-share"] = fairness(a.shares)
}

// second gives quantiles of the second histograms.
func (rep *repetition) second(prefix string, a *account) {
	all := make([][]uint64, a.slots())
	for i := range all {
		all[i] = a.other(i)
	}
	h := newHist(all...)
	for _, q := range quantiles[:3] {
		if v, ok := quantile(h, q.q, tailMin); ok {
			rep.Metrics[prefix+"-"+q.name+"-ns"] = v
		}
	}
}

// fairness gives Jain's index of the shares, 1 when all are equal and 1/n when
// one has it all, and the smallest share relative to an equal one.
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

// status of a cell is that of its worst repetition.
func (r *result) status() (status, reason string) {
	if r.Cell.Skip != "" {
		return statusSkipped, r.Cell.Skip
	}
	status = statusOK
	for _, worst := range []string{statusViolation, statusCrashed, statusHung} {
		for _, rep := range r.Reps {
			if rep.Status == worst {
				return worst, rep.Reason
			}
		}
	}
	return status, ""
}

// values lists a metric over the repetitions that have it.
func (r *result) values(metric string) []float64 {
	var vs []float64
	for _, rep := range r.Reps {
		if v, ok := rep.Metrics[metric]; ok && rep.Status == statusOK {
			vs = append(vs, v)
		}
	}
	return vs
}

// metrics lists every metric that any repetition has, sorted.
func (r *result) metrics() []string {
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

// pooled merges the histograms of all repetitions.
func (r *result) pooled() *hdrhistogram.Histogram {
	hs := make([]*hdrhistogram.Histogram, 0, len(r.Reps))
	for _, rep := range r.Reps {
		hs = append(hs, rep.Hist)
	}
	return mergeHists(hs)
}

//go:build linux

package load

import (
	"bytes"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// Collect reads the control page of a cell after its workers have ended.
func Collect(rep *bench.Repetition, c *bench.Cell, p *control.Page) {
	rep.Metrics, rep.Div = map[string]float64{}, 1
	var violations, total, ops, switches uint64
	var first, last int64
	var shares []float64
	for i := range p.Slots() {
		s, _ := p.Slot(i)
		text, _, _ := bytes.Cut(s.Message[:], []byte{0})
		if n := s.Violations; n > 0 {
			violations += n
			rep.Violate("worker %d: %d violations, the first: %s", i, n, text)
		}
		if s.State.Load() == control.SlotFailed && rep.Status == bench.StatusCrashed {
			rep.Reason = fmt.Sprintf("worker %d: %s", i, text)
		}
		if s.PID == 0 || c.Scenario.Name == "crash" && i > 0 {
			continue
		}
		rep.Workers = append(rep.Workers, bench.WorkerReport{
			PID: int(s.PID), CPU: int(s.CPU), Ops: s.Ops, Seconds: float64(s.EndNs-s.StartNs) / 1e9,
			Voluntary: s.Nvcsw, Preempted: s.Nivcsw, UserNs: s.UserNs, SystemNs: s.SysNs, ItersPerNs: s.ItersPerNs,
		})
		total += s.Total
		ops += s.Ops
		switches += s.Nvcsw
		shares = append(shares, float64(s.Ops))
		if s.StartNs != 0 && (first == 0 || s.StartNs < first) {
			first = s.StartNs
		}
		last = max(last, s.EndNs)
	}
	if rep.Status != bench.StatusOK && rep.Status != bench.StatusViolation {
		return
	}
	switch c.Scenario.Name {
	case "uncontended", "lock":
		if p.Counter != total {
			rep.Violate("counter under the lock is %d after %d acquisitions", p.Counter, total)
		}
		checkLinesInTheEnd(rep, p)
	}
	measureCell(rep, c, p, ops, float64(last-first), switches, shares)
}

// measureCell derives the metrics of a repetition from the control page. All workers of the repetition ended normally.
func measureCell(rep *bench.Repetition, c *bench.Cell, p *control.Page, ops uint64, ns float64, switches uint64, shares []float64) {
	m := rep.Metrics
	if ops > 0 {
		m["ctxsw/op"] = float64(switches) / float64(ops)
	}
	m["n"] = float64(ops)
	slot0, hist0 := p.Slot(0)
	tail := stats.TailMin
	switch c.Scenario.Name {
	case "uncontended":
		rep.Hist, rep.Div = stats.NewHist(hist0), bench.UncontendedBatch
	case "handoff":
		rep.Hist = stats.NewHist(hist0)
		m["ctxsw/op"] *= float64(len(shares)) // both threads count each round trip
		if looked := slot0.Metrics[metricLooked]; looked > 0 {
			m["slept"] = slot0.Metrics[metricSlept] / looked
		}
	case "wake":
		_, hist1 := p.Slot(1)
		rep.Hist = stats.NewHist(hist1)
		m["n"] = float64(rep.Hist.TotalCount())
		if v, ok := stats.Quantile(stats.NewHist(hist0), 0.5, tail); ok {
			m["waker-p50-ns"] = v
		}
		if slot1, _ := p.Slot(1); slot1.Ops > 0 { // the share of waits in which the waiter slept
			m["slept"] = min(float64(slot1.Nvcsw)/float64(slot1.Ops), 1)
		}
	case "lock":
		countHandovers(rep, p, hostPlaces())
		if share, ok := inPlace(p); ok {
			m["in-place"] = share
		}
		rep.Throughput(&bench.Account{Page: p, Cell: c, Ops: ops, Ns: ns, Shares: shares})
	case "crash":
		rep.Hist, tail = stats.NewHist(hist0), stats.TailMinCrash
		second, name := stats.NewHist(p.Other(0)), "passed-p50-ns"
		if c.Role == bench.RoleHolder {
			name = "told-p50-ns"
			if second.TotalCount() > 0 {
				rep.Told = second
			}
		}
		if v, ok := stats.Quantile(second, 0.5, tail); ok {
			m[name] = v
		}
		delete(m, "ctxsw/op")
	case "waiters":
		for i, name := range waitersMetrics {
			m[name] = slot0.Metrics[i]
		}
		if slot0.Metrics[metricCancel] == 0 {
			delete(m, "cancel-ns")
		}
		delete(m, "ctxsw/op")
	case "idle":
		slot1, _ := p.Slot(1)
		m["cpu-ns"], m["waited-ns"] = slot1.Metrics[metricCPU], slot1.Metrics[metricWaited]
	default:
		if collect := collects[c.Scenario.Name]; collect != nil {
			collect(rep, &bench.Account{Page: p, Cell: c, Ops: ops, Ns: ns, Shares: shares})
			if c.Gap > 0 { // a cell with pauses has only one sample per pause
				tail = stats.TailMinCrash
			}
		}
	}
	if rep.Hist == nil || rep.Hist.TotalCount() == 0 {
		return
	}
	m["mean-ns"] = rep.Hist.Mean() / rep.Div
	from := 0
	if rep.Div > 1 {
		from = 1
		if !batchMeans(rep, singles(c, p), tail) {
			return
		}
	}
	for _, q := range stats.Quantiles[from:] {
		if v, ok := stats.Quantile(rep.Hist, q.Q, tail); ok {
			m[q.Name+"-ns"] = v / rep.Div
		}
	}
	m["max-ns"] = float64(rep.Hist.Max()) / rep.Div
}

// singles returns the histogram of the operations that were timed one by one, if the scenario also times batches.
// Otherwise it returns nil.
func singles(c *bench.Cell, p *control.Page) *hdrhistogram.Histogram {
	if c.Scenario.Name != "uncontended" && c.Scenario.Name != "readers" {
		return nil
	}
	all := make([][]uint64, p.Slots())
	for i := range all {
		all[i] = p.Other(i)
	}
	return stats.NewHist(all...)
}

// batchMeans sets p50-ns of a measurement whose samples are means of batches to the median of these means. The other
// quantiles cannot come from means, because a mean hides a slow operation. They come from the histogram single, which
// has operations that were timed one by one: batchMeans makes it the histogram of the repetition. It returns false if
// single has no samples.
func batchMeans(rep *bench.Repetition, single *hdrhistogram.Histogram, tail int) bool {
	if v, ok := stats.Quantile(rep.Hist, stats.Quantiles[0].Q, tail); ok {
		rep.Metrics[stats.Quantiles[0].Name+"-ns"] = v / rep.Div
	}
	rep.Hist, rep.Div = nil, 1
	if single == nil || single.TotalCount() == 0 {
		return false
	}
	rep.Hist = single
	return true
}

//go:build linux

package load

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// An open loop begins an operation at the time when it is due, even if earlier operations have not ended, and measures
// from that time. A closed loop begins nothing while it waits. Therefore a closed loop hides how long other users would
// have waited ("coordinated omission"). A stall delays every operation that falls due during the stall, but a closed
// loop measures only one late operation.

// clock provides the time. Tests replace it.
type clock interface {
	now() int64
	sleepUntil(ns int64)
}

// pace is the schedule of an open loop, which begins operations at fixed times, even if earlier ones are late.
type pace struct{ next, every int64 }

// once waits until the next operation is due, and then calls do, which is the operation. It returns two durations,
// which both last until the operation ends: fromDue begins when the operation is due, and fromBegun begins with the
// call of do. A closed loop can measure only fromBegun.
func (p *pace) once(c clock, do func()) (fromDue, fromBegun int64) {
	due := p.next
	p.next += p.every
	c.sleepUntil(due)
	begun := c.now()
	do()
	done := c.now()
	return done - due, done - begun
}

// behind returns the number of operations that were due before now and have not begun.
func (p *pace) behind(now int64) int64 { return max((now-p.next)/p.every, 0) }

// hostClock is the clock of the host. Its method sleepUntil sleeps for most of a wait, and so leaves the CPU to
// other threads. For the rest of the wait it calls Yield in a loop, because a timer may fire too late.
type hostClock struct{}

// timerLate is how many ns before the due time a sleep ends, because a timer may fire too late.
const timerLate = 150_000

func (hostClock) now() int64 { return shmsync.Monotonic() }

func (hostClock) sleepUntil(ns int64) {
	if ns-shmsync.Monotonic() > 2*timerLate {
		control.SleepUntil(ns - timerLate)
	}
	for shmsync.Monotonic() < ns {
		shmsync.Yield()
	}
}

// dueEvery returns the time in ns between the beginnings of two operations of one thread.
func dueEvery(s control.Shape, threads int) int64 {
	return max(int64(float64(threads)/float64(max(s.Rate, 1))*1e9), 1)
}

// workOpen takes a lock at a fixed rate. The main histogram has the times from the instant when an operation was
// due until the thread got the lock. The second histogram has the times from the call of Lock.
func workOpen(t *thread) error {
	l, err := as[bench.Locker](t)
	if err != nil {
		return err
	}
	threads := int(t.Procs * t.Control.Threads)
	cs, every := control.Steps(t.CSNs, t.perNs), dueEvery(t.Shape, threads)
	t.await()
	p := pace{next: t.StartNs.Load() + every*int64(t.index)/int64(threads), every: every}
	x := uint64(t.index)
	for t.next() {
		fromDue, fromBegun := p.once(hostClock{}, l.Lock)
		t.sample(t.counts, fromDue)
		t.sample(t.others, fromBegun)
		v := t.Counter
		if cs > 0 {
			x = control.Work(cs, x)
		}
		t.Counter = v + 1
		l.Unlock()
		t.count(1)
	}
	t.slot.Metrics[metricBehind] = float64(p.behind(shmsync.Monotonic()))
	t.end()
	t.sink = x
	return nil
}

// metricBehind is the index of a metric in the slot: the number of operations that were due at the end and had not
// begun.
const metricBehind = 0

func collectOpen(rep *bench.Repetition, a *bench.Account) {
	if total := a.Total(); a.Counter != total {
		rep.Violate("counter under the lock is %d after %d acquisitions", a.Counter, total)
	}
	rep.Throughput(a)
	rep.Metrics["behind"] = a.Sum(metricBehind)
	all := make([][]uint64, a.Slots())
	for i := range all {
		all[i] = a.Other(i)
	}
	closed := stats.NewHist(all...)
	replayed := corrected(closed, dueEvery(a.Cell.Shape, a.Slots()))
	for _, q := range stats.Quantiles[:4] {
		if v, ok := stats.Quantile(closed, q.Q, stats.TailMin); ok {
			rep.Metrics["closed-"+q.Name+"-ns"] = v
		}
		if v, ok := stats.Quantile(replayed, q.Q, stats.TailMin); ok {
			rep.Metrics["corrected-"+q.Name+"-ns"] = v
		}
	}
}

// corrected estimates the latencies of an open loop from the latencies of a closed loop. The parameter every is the
// time in ns from one operation of the open loop to the next. corrected adds the samples that the closed loop missed,
// as HdrHistogram does. A report shows the estimate beside the measured latencies of the open loop.
func corrected(closed *hdrhistogram.Histogram, every int64) *hdrhistogram.Histogram {
	h := stats.NewHist()
	for _, b := range closed.Distribution() {
		if b.Count == 0 {
			continue
		}
		h.RecordValues(b.To, b.Count)
		for v := b.To - every; v >= every; v -= every {
			h.RecordValues(v, b.Count)
		}
	}
	return h
}

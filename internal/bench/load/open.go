//go:build linux

package load

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// An open loop begins its operations when they are due, whether the earlier ones have ended or
// not, and measures from the due time. A closed loop begins nothing while it waits, so it does
// not see how long other users would have waited: a stall is one sample for it, while users
// experience as many stalls as operations fall due meanwhile ("coordinated omission").

// clock is the time; tests replace it.
type clock interface {
	now() int64
	sleepUntil(ns int64)
}

// pace is the schedule of an open loop.
type pace struct{ next, every int64 }

// once does what is due next. It returns the time since the operation was due, and the time since
// it began, which is all that a closed loop sees.
func (p *pace) once(c clock, do func()) (fromDue, fromBegun int64) {
	due := p.next
	p.next += p.every
	c.sleepUntil(due)
	begun := c.now()
	do()
	done := c.now()
	return done - due, done - begun
}

// behind is the number of operations that were due and have not begun.
func (p *pace) behind(now int64) int64 { return max((now-p.next)/p.every, 0) }

// hostClock is the clock of the host. It sleeps for most of a wait, because that frees the CPU,
// and yields for the rest, because timers are late.
type hostClock struct{}

// timerLate is how much before the due time a sleep ends.
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

// dueEvery is the time between two operations of one thread.
func dueEvery(s control.Shape, threads int) int64 {
	return max(int64(float64(threads)/float64(max(s.Rate, 1))*1e9), 1)
}

// workOpen takes a lock at a rate. The main histogram has the time from when the lock was due
// until the thread got it, the second histogram the time from the call.
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

// metricBehind is the index in the slot of the number of operations that were due and not begun
// in the end.
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

// corrected adds to the samples of a closed loop what it would have seen if it had begun an
// operation every that many nanoseconds, as HdrHistogram does. It is an estimate for cases in
// which the truth was not recorded.
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

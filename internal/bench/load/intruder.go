//go:build linux

package load

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// workIntruder takes a lock repeatedly in thread 0, the owner. Thread 1, the intruder, takes the lock once after each
// pause. If the lock is biased toward its owner, the owner takes it cheaply, and the intruder pays more.
func workIntruder(t *thread) error {
	l, err := as[bench.Locker](t)
	if err != nil {
		return err
	}
	hold := func() {
		l.Lock()
		t.Counter++
		l.Unlock()
		t.count(1)
	}
	t.await()
	for t.next() {
		if t.index == 0 {
			hold()
			continue
		}
		control.SleepUntil(shmsync.Monotonic() + int64(t.GapNs))
		since := shmsync.Monotonic()
		l.Lock()
		t.sample(t.counts, shmsync.Monotonic()-since)
		t.Counter++
		l.Unlock()
		t.count(1)
	}
	t.end()
	return nil
}

func collectIntruder(rep *bench.Repetition, a *bench.Account) {
	if a.Counter != a.Total() {
		rep.Violate("counter under the lock is %d after %d acquisitions", a.Counter, a.Total())
	}
	owner, _ := a.Slot(0)
	if ns := owner.EndNs - owner.StartNs; ns > 0 && owner.Ops > 0 {
		rep.Metrics["ops/s"] = float64(owner.Ops) / float64(ns) * 1e9
	}
	_, waits := a.Slot(1)
	rep.Hist = stats.NewHist(waits)
	rep.Metrics["n"] = float64(rep.Hist.TotalCount())
	delete(rep.Metrics, "ctxsw/op")
}

// fencer is the interface that fence measurements need of their subject. Fence makes every running thread of the
// processes of a measurement execute a memory fence.
type fencer interface{ Fence() error }

// fenceSteps is the number of steps of work that a busy thread does before it checks again whether the measurement has
// ended.
const fenceSteps = 1000

// workFence times fences in thread 0, while all other threads are busy.
func workFence(t *thread) error {
	f, err := as[fencer](t)
	if err != nil {
		return err
	}
	t.await()
	for x := uint64(t.index); t.next(); {
		if t.index > 0 {
			x = control.Work(fenceSteps, x)
			t.sink = x
			t.count(1)
			continue
		}
		since := shmsync.Monotonic()
		if err := f.Fence(); err != nil {
			return err
		}
		t.sample(t.counts, shmsync.Monotonic()-since)
		t.count(1)
	}
	t.end()
	return nil
}

func collectFence(rep *bench.Repetition, a *bench.Account) {
	first, times := a.Slot(0)
	rep.Hist = stats.NewHist(times)
	rep.Metrics["n"] = float64(first.Ops)
	delete(rep.Metrics, "ctxsw/op")
}

//go:build linux

package load

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// rouser is the interface that herd measurements need of their subject. Rouse(n) gives n permits to threads that are in
// Rest or call Rest later. Rest returns when the caller has got a permit.
type rouser interface {
	Rest()
	Rouse(n int)
}

// workHerd measures how thread 0 wakes some of the threads of the other processes. Before each wake, these threads
// sleep for a time that the plan sets. A woken thread waits until all threads of the round have woken, because
// otherwise one round could wake a thread twice.
func workHerd(t *thread) error {
	h, err := as[rouser](t)
	if err != nil {
		return err
	}
	t.await()
	if t.index == 0 {
		t.rouse(h, uint64(t.Procs*t.Control.Threads)-1, t.Shape.Wake)
	} else {
		t.rest(h, t.Shape.Wake)
	}
	t.end()
	return nil
}

func (t *thread) rouse(h rouser, waiters, wake uint64) {
	s := t.Scratch()
	for round := uint64(1); ; round++ {
		for s.Armed.Load() < waiters+(round-1)*wake {
			time.Sleep(pollEvery)
		}
		control.SleepUntil(shmsync.Monotonic() + int64(t.GapNs))
		if !t.next() {
			s.Round.Store(round | lastRound)
			h.Rouse(int(waiters))
			return
		}
		t0 := shmsync.Monotonic()
		t.StampNs.Store(t0)
		s.Round.Store(round)
		h.Rouse(int(wake))
		t.sample(t.counts, shmsync.Monotonic()-t0)
		t.count(1)
		t.awaitCame(round * wake)
	}
}

func (t *thread) rest(h rouser, wake uint64) {
	s := t.Scratch()
	for {
		s.Armed.Add(1)
		h.Rest()
		now := shmsync.Monotonic()
		round := s.Round.Load()
		if round&lastRound != 0 {
			return
		}
		t.next()
		d := now - t.StampNs.Load()
		came := s.Came.Add(1)
		if came > round*wake {
			t.violate("%d came in %d rounds, each for %d", came, round, wake)
			s.Came.Add(lostCount)
			t.awaitStop()
			return
		}
		t.sample(t.others, d)
		t.count(1)
		if came == round*wake {
			t.sample(t.counts, d) // this thread was the last one of the round
		}
		t.awaitCame(round * wake)
	}
}

func collectHerd(rep *bench.Repetition, a *bench.Account) {
	first, cost := a.Slot(0)
	var last [][]uint64
	for i := 1; i < a.Slots(); i++ {
		_, counts := a.Slot(i)
		last = append(last, counts)
	}
	want := first.Total * a.Cell.Wake
	if came := a.Scratch().Came.Load(); came != want {
		rep.Violate("%d came in %d rounds, not %d", came, first.Total, want)
	}
	rep.Hist = stats.NewHist(last...)
	rep.Metrics["n"] = float64(rep.Hist.TotalCount())
	delete(rep.Metrics, "ctxsw/op")
	if v, ok := stats.Quantile(stats.NewHist(cost), 0.5, stats.TailMinCrash); ok {
		rep.Metrics["waker-p50-ns"] = v
	}
	rep.Second("each", a)
}

//go:build linux

package load

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// gate is what event cells need: Open lets every thread through that awaits that round or comes
// later. Rounds count from 1, and a round opens when all threads have come through the previous
// one.
type gate interface {
	Open(round uint64)
	Await(round uint64)
}

// lastRound marks the round in which the waiters leave.
const lastRound = 1 << 63

// lostCount is added to a count of arrivals that is lost anyway, so that no thread waits for it
// any more.
const lostCount = 1 << 40

// pollEvery is the time between two checks whether all threads have come.
const pollEvery = 20 * time.Microsecond

// workEvent opens a gate for waiters that have been asleep for the gap. The first thread opens;
// the waiters are the threads of all processes but the first.
func workEvent(t *thread) error {
	g, err := as[gate](t)
	if err != nil {
		return err
	}
	waiters := uint64(t.eventWaiters())
	s := t.Scratch()
	t.await()
	switch {
	case t.index == 0:
		t.openGates(g, waiters)
	case t.index >= t.openers():
		t.comeThrough(g, waiters)
	default: // a thread in the opener's process that does nothing
		for s.Round.Load() < lastRound {
			time.Sleep(time.Millisecond)
		}
	}
	t.end()
	return nil
}

// openers is the number of threads in the opener's process.
func (t *thread) openers() int {
	return int(t.Procs*t.Control.Threads) - t.eventWaiters()
}

// eventWaiters is the number of waiting threads. The plan counts the threads of each process in
// N, since a subject of one process has all of them in one.
func (t *thread) eventWaiters() int {
	return int(t.Procs*t.Control.Threads - uint32(t.N))
}

func (t *thread) openGates(g gate, waiters uint64) {
	s := t.Scratch()
	for round := uint64(1); ; round++ {
		control.SleepUntil(shmsync.Monotonic() + int64(t.GapNs))
		if !t.next() {
			s.Round.Store(round | lastRound)
			g.Open(round)
			return
		}
		t0 := shmsync.Monotonic()
		t.StampNs.Store(t0)
		s.Round.Store(round)
		g.Open(round)
		t.sample(t.counts, shmsync.Monotonic()-t0)
		t.count(1)
		t.awaitCame(round * waiters)
	}
}

// awaitStop sleeps until the cell stops.
func (t *thread) awaitStop() {
	for t.next() {
		time.Sleep(pollEvery)
	}
}

// awaitCame sleeps until want threads have come through in all.
func (t *thread) awaitCame(want uint64) {
	for t.Scratch().Came.Load() < want {
		time.Sleep(pollEvery)
	}
}

func (t *thread) comeThrough(g gate, waiters uint64) {
	s := t.Scratch()
	for round := uint64(1); ; round++ {
		g.Await(round)
		now := shmsync.Monotonic()
		at := s.Round.Load()
		if at&lastRound != 0 && at&^lastRound == round {
			return
		}
		if at != round {
			t.violate("came through round %d in round %d", round, at)
			s.Came.Add(lostCount)
			t.awaitStop()
			return
		}
		t.next()
		d := now - t.StampNs.Load()
		t.sample(t.others, d)
		t.count(1)
		if s.Came.Add(1) == round*waiters {
			t.sample(t.counts, d) // the last thread of the round
		}
	}
}

func collectEvent(rep *bench.Repetition, a *bench.Account) {
	_, opened := a.Slot(0)
	var last [][]uint64
	rounds := uint64(0)
	for i := range a.Slots() {
		if i == 0 {
			s, _ := a.Slot(0)
			rounds = s.Total
			continue
		}
		_, counts := a.Slot(i)
		last = append(last, counts)
	}
	want := rounds * uint64(a.Slots()-a.Cell.Threads)
	if came := a.Scratch().Came.Load(); came != want {
		rep.Violate("%d came through in %d rounds, not %d", came, rounds, want)
	}
	rep.Hist = stats.NewHist(last...)
	rep.Metrics["n"] = float64(rep.Hist.TotalCount())
	delete(rep.Metrics, "ctxsw/op")
	if v, ok := stats.Quantile(stats.NewHist(opened), 0.5, stats.TailMinCrash); ok {
		rep.Metrics["set-p50-ns"] = v
	}
	rep.Second("each", a)
}

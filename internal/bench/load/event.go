//go:build linux

package load

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// gate is the interface that event measurements need of their subject. Open opens a round: it releases all threads that
// wait in Await for this round, and all that call Await for this round later. The first round has the number 1. The
// caller opens a round only after all threads have come through the previous one.
type gate interface {
	Open(round uint64)
	Await(round uint64)
}

// lastRound is a flag in the number of a round. It tells the waiters to leave, because no round follows.
const lastRound = 1 << 63

// lostCount is the number that a thread adds to Scratch.Came when it finds a violation. Because the thread then counts
// no more arrivals, awaitCame would otherwise wait for ever.
const lostCount = 1 << 40

// pollEvery is the time between two checks whether all waiters have come through the gate.
const pollEvery = 20 * time.Microsecond

// workEvent opens a gate after a pause, in which the waiters fall asleep. The plan sets the length of the pause. The
// first thread opens the gate. The waiters are the threads of all processes but the first.
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
	default: // other threads of the opener's process do nothing
		for s.Round.Load() < lastRound {
			time.Sleep(time.Millisecond)
		}
	}
	t.end()
	return nil
}

// openers returns the number of threads in the process whose thread opens the gate.
func (t *thread) openers() int {
	return int(t.Procs*t.Control.Threads) - t.eventWaiters()
}

// eventWaiters returns the number of waiting threads, which are all threads except the first t.N. The plan sets t.N to
// the number of threads per process. It does so even if the subject makes all threads run in one process.
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

// awaitStop sleeps until the measurement stops.
func (t *thread) awaitStop() {
	for t.next() {
		time.Sleep(pollEvery)
	}
}

// awaitCame sleeps until Scratch.Came has reached the number want. Scratch.Came counts how often waiters have come
// through the gate, in all rounds.
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
			t.sample(t.counts, d) // this thread was the last one of the round
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

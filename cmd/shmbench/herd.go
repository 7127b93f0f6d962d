//go:build linux

package main

import (
	"slices"
	"time"

	"github.com/shmsync/shmsync"
)

// rouser is what herd cells need: Rest returns when the caller is one of those whom a
// Rouse is for; each Rouse of n is for n of them, whether they rest already or not.
type rouser interface {
	Rest()
	Rouse(n int)
}

// herdMost is how many may sleep, since each is a process. The waiters of other cells,
// which are goroutines, may be more.
const herdMost = 255

// herdCells are some of many that sleep in one place, each a process.
func herdCells(o *options) (cells []cell) {
	for _, gap := range or(o.Gaps, o.Gap) {
		for _, place := range or(o.Places, placeCross) {
			for _, n := range or(o.Waiters, o.some([]int{4}, []int{1, 4, 16})...) {
				for _, wake := range slices.Compact(or(o.Wake, 1, n)) {
					if wake > n || wake == 0 || n > herdMost {
						continue
					}
					cells = append(cells, cell{Place: place, Procs: n + 1, Threads: 1, N: n, Gap: gap,
						shape: shape{Wake: uint64(wake)}, Time: fewRounds / 2 * gap})
				}
			}
		}
	}
	return cells
}

// workHerd rouses some of the threads of all processes but the first, after they have
// rested for the gap. Whoever came waits until all have, so that nobody comes twice in
// a round.
func workHerd(t *thread) error {
	h, err := as[rouser](t)
	if err != nil {
		return err
	}
	t.await()
	if t.index == 0 {
		t.rouse(h, uint64(t.procs*t.control.threads)-1, t.shape.Wake)
	} else {
		t.rest(h, t.shape.Wake)
	}
	t.end()
	return nil
}

func (t *thread) rouse(h rouser, waiters, wake uint64) {
	s := t.scratch()
	for round := uint64(1); ; round++ {
		for s.armed.Load() < waiters+(round-1)*wake {
			time.Sleep(pollEvery)
		}
		sleepUntil(shmsync.Monotonic() + int64(t.gapNs))
		if !t.next() {
			s.round.Store(round | lastRound)
			h.Rouse(int(waiters))
			return
		}
		t0 := shmsync.Monotonic()
		t.stampNs.Store(t0)
		s.round.Store(round)
		h.Rouse(int(wake))
		t.sample(t.counts, shmsync.Monotonic()-t0)
		t.count(1)
		t.awaitCame(round * wake)
	}
}

func (t *thread) rest(h rouser, wake uint64) {
	s := t.scratch()
	for {
		s.armed.Add(1)
		h.Rest()
		now := shmsync.Monotonic()
		round := s.round.Load()
		if round&lastRound != 0 {
			return
		}
		t.next()
		d := now - t.stampNs.Load()
		came := s.came.Add(1)
		if came > round*wake {
			t.violate("%d came in %d rounds, each for %d", came, round, wake)
			s.came.Add(lostCount)
			t.awaitStop()
			return
		}
		t.sample(t.others, d)
		t.count(1)
		if came == round*wake {
			t.sample(t.counts, d) // the last one
		}
		t.awaitCame(round * wake)
	}
}

func collectHerd(rep *repetition, a *account) {
	first, cost := a.slot(0)
	var last [][]uint64
	for i := 1; i < a.slots(); i++ {
		_, counts := a.slot(i)
		last = append(last, counts)
	}
	want := first.total * a.cell.Wake
	if came := a.scratch().came.Load(); came != want {
		rep.violate("%d came in %d rounds, not %d", came, first.total, want)
	}
	rep.Hist = newHist(last...)
	rep.Metrics["n"] = float64(rep.Hist.TotalCount())
	delete(rep.Metrics, "ctxsw/op")
	if v, ok := quantile(newHist(cost), 0.5, tailMinCrash); ok {
		rep.Metrics["waker-p50-ns"] = v
	}
	rep.second("each", a)
}

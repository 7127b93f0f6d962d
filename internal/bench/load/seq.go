//go:build linux

package load

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/bench/subjects"
)

// sequence is the interface that seq measurements need of their subject: a value that only counts up. Wait returns true
// when the value is at least the parameter token, or false if Stop was called first.
type sequence interface {
	Increment()
	Value() uint64
	Wait(token uint64) bool
	Stop()
}

// workSeq increments a value in one process, while the goroutines of another process wait for it. Shape.Wake goroutines
// wait for the next value, and the others wait for values that the measurement never reaches. If Shape.Wake is 0,
// workSeq times batches of increments instead.
func workSeq(t *thread) error {
	q, err := as[sequence](t)
	if err != nil {
		return err
	}
	if t.index != 0 {
		c := &seqCrowd{thread: t, q: q}
		c.run()
		return nil
	}
	t.await()
	switch {
	case t.Shape.Wake == 0:
		t.incrementBatches(q)
	case t.Shape.Slow > 0:
		t.incrementOnAndOn(q)
	default:
		t.incrementRounds(q)
	}
	if v := q.Value(); v != t.slot.Total {
		t.violate("the value is %d after %d increments", v, t.slot.Total)
	}
	t.end()
	t.Scratch().Round.Store(lastRound)
	q.Stop()
	return nil
}

func (t *thread) incrementBatches(q sequence) {
	for t.next() {
		t0 := shmsync.Monotonic()
		for range t.Batch {
			q.Increment()
		}
		t.sample(t.counts, shmsync.Monotonic()-t0)
		t.count(t.Batch)
	}
}

func (t *thread) incrementRounds(q sequence) {
	s := t.Scratch()
	for round := uint64(1); ; round++ {
		control.SleepUntil(shmsync.Monotonic() + int64(t.GapNs))
		if !t.next() {
			return
		}
		t0 := shmsync.Monotonic()
		t.StampNs.Store(t0)
		s.Round.Store(round)
		q.Increment()
		t.sample(t.counts, shmsync.Monotonic()-t0)
		t.count(1)
		t.awaitCame(round * t.Shape.Wake)
	}
}

// incremented returns the word that keeps the instant at which the sequence got this value.
func incremented(s *control.Scratch, value uint64) *atomic.Int64 {
	return &s.Trips[value/control.ScratchTrips%control.ScratchLanes][value%control.ScratchTrips]
}

// incrementOnAndOn increments at fixed times, without waiting for the consumers, which wait for new values. At the end
// it waits until all consumers have seen all values.
func (t *thread) incrementOnAndOn(q sequence) {
	s, value := t.Scratch(), uint64(0)
	for due := shmsync.Monotonic(); ; {
		due += int64(t.GapNs)
		control.SleepUntil(due)
		if !t.next() {
			break
		}
		value++
		t0 := shmsync.Monotonic()
		incremented(s, value).Store(t0)
		q.Increment()
		t.sample(t.counts, shmsync.Monotonic()-t0)
		t.count(1)
	}
	t.awaitCame(value * t.Shape.Wake)
}

// seqCrowd runs the waiters of a seq measurement, which are goroutines of one process.
type seqCrowd struct {
	*thread
	q  sequence
	mu sync.Mutex
}

func (c *seqCrowd) run() {
	var all sync.WaitGroup
	for i := range c.N {
		all.Go(func() {
			c.Scratch().Armed.Add(1)
			if i < c.Shape.Wake && c.Shape.Slow > 0 {
				c.slow(i)
			} else if i < c.Shape.Wake {
				c.near()
			} else if c.q.Wait(subjects.FarToken + i) {
				c.wrong("a token of %d came, the value is %d", subjects.FarToken+i, c.q.Value())
			}
		})
	}
	for c.Scratch().Armed.Load() < c.N {
		control.SleepUntil(shmsync.Monotonic() + int64(pollEvery))
	}
	settle()
	c.mu.Lock()
	c.await()
	c.mu.Unlock()
	all.Wait()
	c.awaitStop()
	c.end()
}

// near is the loop of a goroutine that waits for every value in turn.
func (c *seqCrowd) near() {
	s := c.Scratch()
	for round := uint64(1); c.q.Wait(round); round++ {
		now := shmsync.Monotonic()
		if at := s.Round.Load(); at != round {
			c.wrong("came through round %d in round %d", round, at)
			s.Came.Add(lostCount)
			return
		}
		d := now - c.StampNs.Load()
		if s.Came.Add(1) == round*c.Shape.Wake { // the last waiter of the round
			c.mu.Lock()
			c.next()
			c.count(1)
			c.sample(c.counts, d)
			c.mu.Unlock()
		}
	}
}

// slow is the loop of a goroutine that works after each wake. The value may grow several times during this work, so the
// goroutine may see several new values after one wake.
func (c *seqCrowd) slow(i uint64) {
	s, n := c.Scratch(), control.Steps(c.Shape.Slow, c.perNs)
	for next := uint64(1); c.q.Wait(next); {
		now, value := shmsync.Monotonic(), c.q.Value()
		if value < next {
			c.wrong("came through at %d, but waited for %d", value, next)
			s.Came.Add(lostCount)
			return
		}
		// Scratch.Trips has the instants of the newest 2*bench.SeqMostBehind values only. If the goroutine waited for
		// an older value, it takes the oldest of these instants.
		at := incremented(s, max(next, value-min(value, 2*bench.SeqMostBehind-1))).Load()
		c.mu.Lock()
		c.next()
		c.count(1)
		c.sample(c.counts, now-at)
		c.sample(c.others, int64(value-next))
		c.mu.Unlock()
		s.Came.Add(value + 1 - next)
		next = value + 1
		i = control.Work(n, i)
	}
	c.mu.Lock()
	c.sink += i
	c.mu.Unlock()
}

func (c *seqCrowd) wrong(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violate(format, args...)
}

func collectSeq(rep *bench.Repetition, a *bench.Account) {
	s0, steps := a.Slot(0)
	_, all := a.Slot(1)
	rep.Hist = stats.NewHist(steps)
	rep.Metrics["n"] = float64(s0.Ops)
	delete(rep.Metrics, "ctxsw/op")
	if a.Cell.Slow > 0 {
		collectSlow(rep, a, all, s0.Total)
		return
	}
	if a.Cell.Wake == 0 {
		rep.Div = bench.UncontendedBatch
	} else if came, want := a.Scratch().Came.Load(), s0.Total*uint64(a.Cell.Wake); came != want {
		rep.Violate("%d came through in %d rounds, not %d", came, s0.Total, want)
	}
	if v, ok := stats.Quantile(stats.NewHist(all), 0.5, stats.TailMinCrash); ok {
		rep.Metrics["all-p50-ns"] = v
	}
}

// collectSlow derives the metrics of a seq measurement in which the consumers work after each wake.
func collectSlow(rep *bench.Repetition, a *bench.Account, seen []uint64, total uint64) {
	if came, want := a.Scratch().Came.Load(), total*uint64(a.Cell.Wake); came != want {
		rep.Violate("%d values were seen of %d, not %d", came, total, want)
	}
	rep.Hist = stats.NewHist(seen)
	lag := stats.NewHist(a.Other(1))
	if v, ok := stats.Quantile(lag, 0.5, stats.TailMinCrash); ok {
		rep.Metrics["lag-p50"] = v
	}
	rep.Metrics["lag-max"] = float64(lag.Max())
}

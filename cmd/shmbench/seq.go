//go:build linux

package main

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// sequence is what seq cells need: a number that counts up, and waits for it to
// reach a token. Wait is false when the sequence was stopped.
type sequence interface {
	Increment()
	Value() uint64
	Wait(token uint64) bool
	Stop()
}

// farToken is what those wait for whom no increment wakes.
const farToken = 1 << 40

// workSeq increments in one process, and waits in another: Wake goroutines for
// the next value, and the others for values that do not come. With none to
// wake, batches of increments are timed.
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
	case t.shape.Wake == 0:
		t.incrementBatches(q)
	case t.shape.Slow > 0:
		t.incrementOnAndOn(q)
	default:
		t.incrementRounds(q)
	}
	if v := q.Value(); v != t.slot.total {
		t.violate("the value is %d after %d increments", v, t.slot.total)
	}
	t.end()
	t.scratch().round.Store(lastRound)
	q.Stop()
	return nil
}

func (t *thread) incrementBatches(q sequence) {
	for t.next() {
		t0 := shmsync.Monotonic()
		for range t.batch {
			q.Increment()
		}
		t.sample(t.counts, shmsync.Monotonic()-t0)
		t.count(t.batch)
	}
}

func (t *thread) incrementRounds(q sequence) {
	s := t.scratch()
	for round := uint64(1); ; round++ {
		sleepUntil(shmsync.Monotonic() + int64(t.gapNs))
		if !t.next() {
			return
		}
		t0 := shmsync.Monotonic()
		t.stampNs.Store(t0)
		s.round.Store(round)
		q.Increment()
		t.sample(t.counts, shmsync.Monotonic()-t0)
		t.count(1)
		t.awaitCame(round * t.shape.Wake)
	}
}

// seqMostBehind is how many increments a slow consumer may be behind, by plan: half of
// those whose instants are kept.
const seqMostBehind = scratchLanes * scratchTrips / 2

// incremented is where the instant of an increment is kept.
func (s *scratch) incremented(value uint64) *atomic.Int64 {
	return &s.trips[value/scratchTrips%scratchLanes][value%scratchTrips]
}

// incrementOnAndOn waits for nobody but, in the end, for all to have seen all.
func (t *thread) incrementOnAndOn(q sequence) {
	s, value := t.scratch(), uint64(0)
	for due := shmsync.Monotonic(); ; {
		due += int64(t.gapNs)
		sleepUntil(due)
		if !t.next() {
			break
		}
		value++
		t0 := shmsync.Monotonic()
		s.incremented(value).Store(t0)
		q.Increment()
		t.sample(t.counts, shmsync.Monotonic()-t0)
		t.count(1)
	}
	t.awaitCame(value * t.shape.Wake)
}

// seqCrowd is the waiters of a seq cell, goroutines of one process.
type seqCrowd struct {
	*thread
	q  sequence
	mu sync.Mutex
}

func (c *seqCrowd) run() {
	var all sync.WaitGroup
	for i := range c.n {
		all.Go(func() {
			c.scratch().armed.Add(1)
			if i < c.shape.Wake && c.shape.Slow > 0 {
				c.slow(i)
			} else if i < c.shape.Wake {
				c.near()
			} else if c.q.Wait(farToken + i) {
				c.wrong("a token of %d came, the value is %d", farToken+i, c.q.Value())
			}
		})
	}
	for c.scratch().armed.Load() < c.n {
		sleepUntil(shmsync.Monotonic() + int64(pollEvery))
	}
	settle()
	c.mu.Lock()
	c.await()
	c.mu.Unlock()
	all.Wait()
	c.awaitStop()
	c.end()
}

// near goes through every round.
func (c *seqCrowd) near() {
	s := c.scratch()
	for round := uint64(1); c.q.Wait(round); round++ {
		now := shmsync.Monotonic()
		if at := s.round.Load(); at != round {
			c.wrong("came through round %d in round %d", round, at)
			s.came.Add(lostCount)
			return
		}
		d := now - c.stampNs.Load()
		if s.came.Add(1) == round*c.shape.Wake { // the last one
			c.mu.Lock()
			c.next()
			c.count(1)
			c.sample(c.counts, d)
			c.mu.Unlock()
		}
	}
}

// slow sees every value, some of them at once: after each wake it works.
func (c *seqCrowd) slow(i uint64) {
	s, n := c.scratch(), steps(c.shape.Slow, c.perNs)
	for next := uint64(1); c.q.Wait(next); {
		now, value := shmsync.Monotonic(), c.q.Value()
		if value < next {
			c.wrong("came through at %d, but waited for %d", value, next)
			s.came.Add(lostCount)
			return
		}
		// Of what is further behind than instants are kept, the oldest that is.
		at := s.incremented(max(next, value-min(value, 2*seqMostBehind-1))).Load()
		c.mu.Lock()
		c.next()
		c.count(1)
		c.sample(c.counts, now-at)
		c.sample(c.others, int64(value-next))
		c.mu.Unlock()
		s.came.Add(value + 1 - next)
		next = value + 1
		i = work(n, i)
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

func collectSeq(rep *repetition, a *account) {
	s0, steps := a.slot(0)
	_, all := a.slot(1)
	rep.Hist = newHist(steps)
	rep.Metrics["n"] = float64(s0.ops)
	delete(rep.Metrics, "ctxsw/op")
	if a.cell.Slow > 0 {
		rep.collectSlow(a, all, s0.total)
		return
	}
	if a.cell.Wake == 0 {
		rep.Div = uncontendedBatch
	} else if came, want := a.scratch().came.Load(), s0.total*uint64(a.cell.Wake); came != want {
		rep.violate("%d came through in %d rounds, not %d", came, s0.total, want)
	}
	if v, ok := quantile(newHist(all), 0.5, tailMinCrash); ok {
		rep.Metrics["all-p50-ns"] = v
	}
}

// collectSlow makes the metrics of consumers that work after each wake.
func (rep *repetition) collectSlow(a *account, seen []uint64, total uint64) {
	if came, want := a.scratch().came.Load(), total*uint64(a.cell.Wake); came != want {
		rep.violate("%d values were seen of %d, not %d", came, total, want)
	}
	rep.Hist = newHist(seen)
	lag := newHist(a.other(1))
	if v, ok := quantile(lag, 0.5, tailMinCrash); ok {
		rep.Metrics["lag-p50"] = v
	}
	rep.Metrics["lag-max"] = float64(lag.Max())
}

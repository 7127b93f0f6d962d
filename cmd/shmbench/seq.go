//go:build linux

package main

import (
	"sync"

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
	if t.shape.Wake == 0 {
		t.incrementBatches(q)
	} else {
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
			if i < c.shape.Wake {
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
	if a.cell.Wake == 0 {
		rep.Div = uncontendedBatch
	} else if came, want := a.scratch().came.Load(), s0.total*uint64(a.cell.Wake); came != want {
		rep.violate("%d came through in %d rounds, not %d", came, s0.total, want)
	}
	if v, ok := quantile(newHist(all), 0.5, tailMinCrash); ok {
		rep.Metrics["all-p50-ns"] = v
	}
}

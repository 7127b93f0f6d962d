package prims

import (
	"context"
	"slices"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// begin returns a wait that begins now. If the wait will be in the token heap, the caller sets its field tell.
func (s *Sequencer) begin(token uint64) tokenWait {
	return tokenWait{token: token, turns: sequencerTurns(s.words.turns.Load()), place: off}
}

// isOver reports whether a wait is over when the counter is at v. Once a wait is over, it stays over. The exception
// is a wait that began during a ResetTo which then sets the counter back.
func (s *Sequencer) isOver(w *tokenWait, v uint64) bool {
	return v >= w.token || w.endedBy(sequencerTurns(s.words.turns.Load()))
}

// endedBy reports whether a CancelWaiters, Stop or ResetTo has ended the wait. The parameter t is the value of the word
// turns in the arena.
func (w *tokenWait) endedBy(t sequencerTurns) bool { return t != w.turns || t.stopped() }

// judge reports whether a wait is over, and how it ended.
//
// judge reads the word turns before the counter. If it read the counter first, the counter could reach the token after
// this load, and then a Stop could change turns. The wait would end with ErrCanceled although its token was reached
// before the Stop.
func (s *Sequencer) judge(w *tokenWait) (over bool, err error) {
	t := sequencerTurns(s.words.turns.Load())
	crashpoint.Hit("sequencer.wait.judged")
	// sync(sequencer.count): acquire
	switch v := s.words.value.Load(); {
	case v >= w.token:
		race.Acquire(s.key)
		return true, nil
	case w.endedBy(t):
		return true, s.canceled()
	}
	return false, nil
}

func (s *Sequencer) canceled() error {
	detail := "the waits were cancelled"
	if sequencerTurns(s.words.turns.Load()).stopped() {
		detail = "it was stopped"
	}
	return failed(s.a, s.object, "sequencer.wait", shmsync.ErrCanceled, nil, detail)
}

// mostOnWord is the greatest number of waits of a cell that sleep on the word of the cell themselves. Such a wait
// wakes soonest, but has to check the counter at each wake. All further waits are in the token heap.
const mostOnWord = 2

// await waits until the wait w is over, or ctx ends, or the handle is closed.
func (s *Sequencer) await(ctx context.Context, w *tokenWait) error {
	c := s.cell(w.token)
	if c == nil {
		return s.opening.error("sequencer.wait")
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	c.counts.add(countContended)
	if !c.load().announced() && c.tuning().Spin(func() bool { return s.isOver(w, s.words.value.Load()) }) {
		c.counts.add(countSpin)
	}
	if over, err := s.judge(w); over {
		c.counts.took()
		return err
	}
	c.counts.add(countSleep)
	cancel := park.CancelBy(ctx)
	defer cancel.Stop()
	if i := c.takeWord(w); i >= 0 {
		defer c.leaveWord(i)
		return c.awaitOnWord(w, &cancel)
	}
	return c.awaitInHeap(ctx, w)
}

// wordWait is a wait that sleeps on the word of a cell itself. A periodic check tests whether the wait is over. The
// word of the cell does not suffice for this test. A process may have made the counter jump past the tokens that the
// word announces, and then been stopped. Or a peer may have overwritten the word.
type wordWait struct {
	used  bool
	token uint64
	turns sequencerTurns
}

// takeWord reserves one of the few places for waits that sleep on the word of the cell. It returns the index of the
// place, or -1 if no place is free.
func (c *tokenCell) takeWord(w *tokenWait) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.onWord {
		if !c.onWord[i].used {
			c.onWord[i] = wordWait{true, w.token, w.turns}
			return i
		}
	}
	return -1
}

func (c *tokenCell) leaveWord(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onWord[i] = wordWait{}
}

// anyOnWordOver reports whether any wait that sleeps on the word of the cell is over.
func (c *tokenCell) anyOnWordOver() bool {
	v, turns := c.s.words.value.Load(), sequencerTurns(c.s.words.turns.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.onWord[:], func(w wordWait) bool { return w.used && (w.token <= v || w.turns != turns) })
}

// awaitOnWord does what the method await does, for a wait that sleeps on the word of the cell.
func (c *tokenCell) awaitOnWord(w *tokenWait, cancel *park.Cancel) error {
	for {
		// Another iteration means that a wake has come, but that the wait is not over.
		word, ok := c.announce(w)
		ended := park.Again
		if ok {
			crashpoint.Hit("sequencer.wait.looked")
			ended = c.queue.Sleep(word.sequence(), park.SleepSpec{}, cancel)
			crashpoint.Hit("sequencer.wait.woken")
		}
		switch over, err := c.s.judge(w); {
		case over:
			c.counts.took()
			return err
		case ended == park.Canceled:
			return cancel.Err()
		case ended == park.Closed:
			return c.closed()
		}
	}
}

// parkedWait is a wait in the token heap for which a goroutine blocks.
type parkedWait struct {
	tokenWait
	told chan struct{} // capacity 1
}

var parkedWaits = sync.Pool{New: func() any {
	w := &parkedWait{told: make(chan struct{}, 1)}
	w.tell = func() { w.told <- struct{}{} }
	return w
}}

// awaitInHeap does what the method await does, for a wait in the token heap.
func (c *tokenCell) awaitInHeap(ctx context.Context, w *tokenWait) error {
	h := parkedWaits.Get().(*parkedWait)
	defer parkedWaits.Put(h)
	h.token, h.turns = w.token, w.turns
	c.join(&h.tokenWait)
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done()
	}
	ended := false
	select {
	case <-h.told:
	case <-done:
		if ended = c.remove(&h.tokenWait); !ended {
			<-h.told
		}
	}
	switch over, err := c.s.judge(w); {
	case over:
		c.counts.took()
		return err
	case ended:
		return ctx.Err()
	}
	return c.outcome(w)
}

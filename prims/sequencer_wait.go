package prims

import (
	"container/heap"
	"context"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// tokenWait is a wait of this process for a token of a Sequencer.
type tokenWait struct {
	token   uint64
	turns   sequencerTurns // when the wait began
	arrival uint64         // guarded by: mu of the cell
	place   int            // guarded by: mu of the cell; in the heap
	// tell is called once, when the wait is over and off the heap. It does not block.
	tell func()
}

// tokenHeap has the waits that are not over, by token, and those for one token by arrival.
type tokenHeap []*tokenWait

func (h tokenHeap) Len() int { return len(h) }
func (h tokenHeap) Less(i, j int) bool {
	return h[i].token < h[j].token || h[i].token == h[j].token && h[i].arrival < h[j].arrival
}
func (h tokenHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *tokenHeap) Push(w any) {
	w.(*tokenWait).place = len(*h)
	*h = append(*h, w.(*tokenWait))
}
func (h *tokenHeap) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last], w.place = nil, off
	*h = (*h)[:last]
	return w
}

// off is the place of a wait that is off its heap.
const off = -1

// begin is a wait that begins now. tell may be set later.
func (s *Sequencer) begin(token uint64) tokenWait {
	return tokenWait{token: token, turns: sequencerTurns(s.words.turns.Load()), place: off}
}

// isOver reports whether a wait is over, with the counter at v. Once it is over, it stays so.
func (s *Sequencer) isOver(w *tokenWait, v uint64) bool {
	t := sequencerTurns(s.words.turns.Load())
	return v >= w.token || t != w.turns || t.stopped()
}

// judge reports whether a wait is over, and how it ended.
func (s *Sequencer) judge(w *tokenWait) (over bool, err error) {
	// sync(sequencer.count): acquire
	switch v := s.words.value.Load(); {
	case v >= w.token:
		race.Acquire(s.key)
		return true, nil
	case s.isOver(w, v):
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

// mostOnWord is how many waits of a cell sleep on its word themselves. They wake soonest, but look at each wake. The
// others are in the heap.
const mostOnWord = 2

// await waits until a wait is over.
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
	if c.onWord.Add(1) <= mostOnWord {
		defer c.onWord.Add(-1)
		return c.awaitOnWord(w, &cancel)
	}
	c.onWord.Add(-1)
	return c.awaitInHeap(ctx, w)
}

// awaitOnWord is await for a goroutine that sleeps on the word.
func (c *tokenCell) awaitOnWord(w *tokenWait, cancel *park.Cancel) error {
	for {
		// The loop ends: each turn follows a wake.
		word, ok := c.announce(w)
		ended := park.Again
		if ok {
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

// parkedWait is a tokenWait for which a goroutine waits.
type parkedWait struct {
	tokenWait
	told chan struct{} // capacity 1
}

var parkedWaits = sync.Pool{New: func() any {
	w := &parkedWait{told: make(chan struct{}, 1)}
	w.tell = func() { w.told <- struct{}{} }
	return w
}}

// awaitInHeap is await for a goroutine whose wait is in the heap.
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
	return c.closed()
}

// join puts a wait into the heap. The caller has entered, and stays until the wait is off the heap.
func (c *tokenCell) join(w *tokenWait) {
	c.mu.Lock()
	c.arrivals++
	w.arrival = c.arrivals
	c.sweep = c.sweep || w.turns != c.turns
	heap.Push(&c.waits, w)
	c.mu.Unlock()
	c.serve()
}

// remove takes a wait off the heap. It reports false if the wait is off already, and tell was or will be called.
func (c *tokenCell) remove(w *tokenWait) bool {
	c.mu.Lock()
	on := w.place != off
	if on {
		heap.Remove(&c.waits, w.place)
	}
	c.mu.Unlock()
	if on {
		c.serve()
	}
	return on
}

// serve tells the waits in the heap that are over, and makes sure that a wake comes for the others. One goroutine at a
// time does so, without the mutex while it tells or wakes: both may lead here again.
func (c *tokenCell) serve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = true
	if c.serving {
		return
	}
	c.serving = true
	defer func() { c.serving = false }()
	for c.again {
		// The loop ends: each turn follows a change by another call.
		c.again = false
		over := c.takeOver()
		var first *tokenWait
		waits := len(c.waits)
		if waits > 0 {
			first = c.waits[0]
		}
		c.mu.Unlock()
		for _, w := range over {
			w.tell()
		}
		armed := c.arm(first, waits)
		c.mu.Lock()
		c.again = c.again || !armed
	}
}

// takeOver takes the waits that are over off the heap: in the order of the tokens, if the counter has reached them.
func (c *tokenCell) takeOver() (over []*tokenWait) { // guarded by: mu
	v, turns := c.s.words.value.Load(), sequencerTurns(c.s.words.turns.Load())
	for len(c.waits) > 0 && (c.waits[0].token <= v || c.queue.Closing()) {
		over = append(over, heap.Pop(&c.waits).(*tokenWait))
	}
	if turns == c.turns && !c.sweep {
		return over
	}
	c.turns, c.sweep = turns, false
	kept := c.waits[:0]
	for _, w := range c.waits {
		if w.turns == turns && !turns.stopped() {
			w.place = len(kept)
			kept = append(kept, w)
			continue
		}
		w.place = off
		over = append(over, w)
	}
	clear(c.waits[len(kept):])
	c.waits = kept
	heap.Init(&c.waits)
	return over
}

// arm makes sure that a wake comes for the waits in the heap, of which first is the first. It reports false if some
// may be over. It is called by the goroutine in serve.
func (c *tokenCell) arm(first *tokenWait, waits int) bool {
	if first == nil {
		if c.watch != nil {
			c.watch.Leave()
			c.watch = nil
		}
		return true
	}
	for {
		// The loop ends: each turn follows a change by another call.
		s, ok := c.announce(first)
		if !ok || c.queue.Closing() {
			return false
		}
		if c.watch == nil || c.watch.Over() {
			w := c.queue.Watch(s.sequence(), c.watch, c.serve)
			if w == nil {
				continue
			}
			c.watch = w
		}
		c.watch.StandFor(waits)
		return true
	}
}

// pendingToken is the wait of a Pending for a token.
type pendingToken struct {
	c    *tokenCell
	wait tokenWait
}

// async is WaitAsync.
func (s *Sequencer) async(token uint64) *Pending {
	wait := s.begin(token)
	if over, err := s.judge(&wait); over {
		return resolved(err)
	}
	c := s.cell(token)
	if c == nil {
		return resolved(s.opening.error("sequencer.wait"))
	}
	if err := c.enter(); err != nil {
		return resolved(err)
	}
	x := &pendingToken{c, wait}
	p := &Pending{op: "sequencer.wait", done: make(chan struct{}), source: x}
	x.wait.tell = p.told
	c.join(&x.wait)
	return p
}

// told ends the Pending: the wait is off the heap.
func (x *pendingToken) told(p *Pending) {
	over, err := x.c.s.judge(&x.wait)
	if !over {
		err = x.c.closed()
	}
	p.end(err)
	x.c.leave()
}

// cancel ends the wait. A token that is reached takes precedence.
func (x *pendingToken) cancel(p *Pending) bool {
	if !x.c.remove(&x.wait) {
		x.told(p)
		return false
	}
	defer x.c.leave()
	if over, err := x.c.s.judge(&x.wait); over {
		p.end(err)
		return false
	}
	p.end(failed(x.c.a, x.c.object, p.op, shmsync.ErrCanceled, nil, "it was cancelled"))
	return true
}

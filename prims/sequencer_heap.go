package prims

import "container/heap"

// tokenWait is a wait of this process for a token, a value that the counter of a Sequencer has to
// reach.
type tokenWait struct {
	token   uint64
	turns   sequencerTurns // the value of sequencerWords.turns when the wait began
	arrival uint64         // guarded by: mu of the cell
	place   int            // guarded by: mu of the cell; the index in the token heap, or the constant off
	// tell is called once, when the wait is over and has left the token heap. It must not block.
	tell func()
}

// tokenHeap is a heap of the waits that are not over, ordered by token. Waits for the same token are
// ordered by arrival.
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

// off is the value of the field place of a wait that is not in a token heap.
const off = -1

// join puts a wait into the token heap. The caller has called the method enter, and calls the method leave only when
// the wait has left the token heap.
func (c *tokenCell) join(w *tokenWait) {
	c.mu.Lock()
	c.arrivals++
	w.arrival = c.arrivals
	c.sweep = c.sweep || w.turns != c.turns
	heap.Push(&c.waits, w)
	c.mu.Unlock()
	c.serve()
}

// isOff reports whether a wait has left the token heap.
func (c *tokenCell) isOff(w *tokenWait) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.place == off
}

// outcome returns the result of a wait that has left the token heap. Either the wait is over, or the handle is
// being closed.
func (c *tokenCell) outcome(w *tokenWait) error {
	switch over, err := c.s.judge(w); {
	case over:
		return err
	case c.queue.Closing():
		return c.closed()
	}
	return c.s.canceled() // the wait was over when it left the heap, but a ResetTo has set the counter back since then
}

// remove takes a wait off the token heap. It reports false if the wait has left the heap already. In that case the
// function tell of the wait was called or will be called.
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

// serve calls the function tell of the waits in the token heap that are over, and makes sure that a wake comes for
// the other waits. Only one goroutine at a time does so. That goroutine releases the mutex c.mu before it calls tell or
// wakes a waiter, because both may call serve again.
func (c *tokenCell) serve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again = true; c.serving {
		return
	}
	if len(c.waits) == 0 && c.watch == nil {
		return // the wake came late; the object may already be gone
	}
	// Up to here the object is kept open by a wait in the token heap, or by the call that has just removed the last
	// wait. From here on, EnterEnding keeps it open.
	c.queue.EnterEnding()
	c.serving = true
	defer func() {
		c.serving = false
		c.queue.Exit()
	}()
	for c.again {
		// The loop repeats only if another call has set c.again meanwhile, or if more waits may be over; see arm.
		c.again = false
		over := c.takeOver()
		var first tokenWait // a copy, because the wait itself may be removed and reused at any time
		waits := len(c.waits)
		if waits > 0 {
			first = *c.waits[0]
		}
		c.mu.Unlock()
		for _, w := range over {
			w.tell()
		}
		armed := c.arm(&first, waits)
		c.mu.Lock()
		c.again = c.again || !armed
	}
}

// anyInHeapOver reports whether any wait in the token heap is over.
func (c *tokenCell) anyInHeapOver() bool {
	v, turns := c.s.words.value.Load(), sequencerTurns(c.s.words.turns.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waits) > 0 && (c.waits[0].token <= v || turns != c.turns)
}

// takeOver takes the waits that are over off the token heap. In the result, the waits whose tokens the counter has
// reached are in the order of their tokens.
func (c *tokenCell) takeOver() (over []*tokenWait) { // guarded by: mu
	v, turns := c.s.words.value.Load(), sequencerTurns(c.s.words.turns.Load())
	for len(c.waits) > 0 && (c.waits[0].token <= v || c.queue.Closing()) {
		over = append(over, heap.Pop(&c.waits).(*tokenWait))
	}
	if turns == c.turns && !c.sweep && !turns.stopped() {
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

// arm makes sure that a wake comes for the waits in the token heap. The parameter first is the first of these
// waits, and the parameter waits is their number. arm returns false if some of the waits may be over. Only the
// goroutine in the method serve calls arm.
func (c *tokenCell) arm(first *tokenWait, waits int) bool {
	if waits == 0 {
		if c.watch != nil {
			c.watch.Leave()
			c.watch = nil
		}
		return true
	}
	for {
		// Another iteration means that another call has changed the word of the cell, so the loop is
		// lock-free.
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

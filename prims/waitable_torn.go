package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// torn reports whether a peer has damaged x, so that the wait of s may never end; see isTorn. It runs no rules, so it
// is quick. It does not wait for the private lock, because another goroutine may hold that lock for long, while a
// rule runs. If torn does not get the lock, it returns false, and the next periodic check examines the wait again.
func (x *Waitable[S, E]) torn(s *park.WaitNode) bool {
	if !x.private.TryLock() {
		return false
	}
	defer x.reapMissed()
	b := takeWakes()
	defer x.wake(b)
	defer x.private.Unlock()
	return x.findTorn(b, s, oneQueue, x.servable) || x.held() && x.holdLost(s.Node.Wanted().Load())
}

// servable returns an error if no process can end the first wait of the queue, whatever the rules say. findTorn calls
// servable in place of the method serve, because serve runs rules.
func (x *waitableCore) servable(c *recordedChange, _ *wakes) error {
	if x.image(c.get(&x.words.current)) == nil {
		c.torn = true
	}
	if w, ok := x.head(c); ok {
		x.detach(c, w, arenakernel.RecordedRemoved) // only a trial, because this change does not take effect
	}
	if c.torn && x.load() == c.c {
		return x.corrupt(tornWaitable)
	}
	return nil
}

// holdLost reports whether a claim of this process for one value of E cannot be counted, because a peer has overwritten the
// list of the blocks with holds. The caller holds x.private.
func (x *waitableCore) holdLost(extra uint64) bool {
	if _, err := x.findBlocks(); err == nil {
		return false
	}
	h, err := x.labelOf(x.name, extra)
	return h.waitableHold == nil && err != nil
}

// tornWaitable is the detail of the error of a wait that ends because a peer has damaged the Waitable.
const tornWaitable = "its queue of waits, its state or its holds"

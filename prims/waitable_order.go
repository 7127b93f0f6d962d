package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// The queue of a Waitable is always in the order in which its waits are served. So a new wait takes its place by a
// walk along the queue, and the first wait is the next one that is served.

// behind finds the place of a new wait for e in the queue: behind the last wait that is served before it. The walk
// begins at the node that the parameter at names. behind returns the node behind which the new wait belongs, or 0 for
// the front. Nodes are given as offsets divided by 64.
//
// If ok is false, another process has changed the Waitable during the walk. Then the caller begins a new change, and
// calls behind again, with prev for at. So the walk goes on from the node prev, unless that node has left the queue.
func (x *Waitable[S, E]) behind(c *recordedChange, e E, at uint32) (prev uint32, ok bool) {
	if x.rules.Before == nil {
		return c.get(x.last), true
	}
	if _, _, on := x.queuedAt(at); !on {
		// Most waits belong at one of the two ends.
		last, first := c.get(x.last), c.get(x.first)
		if last == 0 {
			return 0, x.load() == c.c
		}
		if _, before, ok := x.compare(c, e, last, 0); !ok || !before {
			return last, ok
		}
		if _, before, ok := x.compare(c, e, first, 0); !ok || before {
			return 0, ok
		}
		at = x.begins(c, e)
	}
	// Walk towards the front, past the waits that are served after the new one.
	for steps := 0; at != 0; steps++ {
		w, before, ok := x.compare(c, e, at, steps)
		switch {
		case !ok:
			return at, false
		case before:
			at = c.get(w.Extra())
			continue
		}
		// Walk towards the end, past the waits that are served before the new one. There are some if waits have
		// joined the queue since the walk began.
		next := firstAfter(c.get(w.Next()))
		if next == 0 {
			return at, x.load() == c.c
		}
		if _, before, ok = x.compare(c, e, next, steps); !ok || before {
			return at, ok
		}
		at = next
	}
	return 0, x.load() == c.c
}

// compare returns the queued wait at v, and whether a new wait for e is served before it. ok is false if another
// process has changed the Waitable meanwhile, or if a peer has overwritten the queue.
func (x *Waitable[S, E]) compare(c *recordedChange, e E, v uint32, steps int) (w wait, before, ok bool) {
	w, ok = x.waitAt(c, v)
	if !ok || steps == waitableSteps {
		c.torn = true
		return w, false, false
	}
	wanted := w.Wanted().Load()
	if x.load() != c.c {
		return w, false, false
	}
	return w, x.rules.Before(e, unpackExtra[E](wanted)), true
}

// waitableSteps bounds a walk along a queue, which a peer may have made a circle.
const waitableSteps = 1 << 24

// joinBehind puts the wait of the prepared node s into the queue, as a part of the change x. The wait comes behind the
// wait whose node is at prev, an offset divided by 64, or at the front if prev is 0.
func (q *recordQueue) joinBehind(x *recordedChange, s *park.WaitNode, prev uint32) {
	if prev == x.get(q.last) {
		q.join(x, s)
		return
	}
	n, me := s.Node, uint32(s.Off/linkUnit)
	n.Stamp().Store(arenakernel.RecordedStamp | (x.c.version()+1)&(1<<31-1)<<32)
	crashpoint.Hit("record.wait.prepared")
	n.Extra().Store(uint64(makeRecorded(prev, s.ExtraTag)))
	next := uint32(0)
	if prev == 0 {
		next = x.get(q.first)
		x.set(recordFirst, q.at, q.first, me)
	} else if w, ok := q.waitAt(x, prev); ok {
		next = x.get(w.Next())
		x.set(recordNext, prev, w.Next(), me)
	}
	if w, ok := q.waitAt(x, next); ok {
		x.torn = x.torn || x.get(w.Extra()) != prev
		x.set(recordPrev, next, w.Extra(), me)
	}
	x.set(recordNext, me, n.Next(), next)
}

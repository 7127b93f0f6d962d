package prims

import (
	"slices"

	"github.com/shmsync/shmsync/arena"
)

func (x *Waitable[S, E]) claim(s *S, extra uint64) bool {
	return x.rules.Claim(s, unpackExtra[E](extra))
}

// find is the entry for claims of n, nil if it has none of that sort.
func (x *Waitable[S, E]) find(n arena.Name, extra uint64) *waitableHold {
	for _, h := range x.holds {
		if h.count.Load() != 0 && h.name.Load() == uint64(n) && h.extra.Load() == extra {
			return h
		}
	}
	return nil
}

// hold adds to c that n has one more claim, and reports whether there is room.
func (x *Waitable[S, E]) hold(c *change, n arena.Name, extra uint64) bool {
	if x.rules.Release == nil && x.rules.Bury == nil {
		return true
	}
	if h := x.find(n, extra); h != nil {
		c.set(&h.count, h.count.Load()+1)
		return h.count.Load() < waitableCount
	}
	for _, h := range x.holds {
		if h.count.Load() == 0 {
			c.set(&h.name, uint64(n))
			c.set(&h.extra, extra)
			c.set(&h.count, 1)
			return true
		}
	}
	return false
}

// next is the wait that is served next.
func (x *Waitable[S, E]) next() (first wait, ok bool) {
	first, ok = x.fifo.head()
	if x.rules.Before == nil || !ok {
		return first, ok
	}
	best := unpackExtra[E](first.Wanted().Load())
	x.fifo.each(func(w wait) bool {
		if e := unpackExtra[E](w.Wanted().Load()); w != first && x.rules.Before(e, best) {
			first, best = w, e
		}
		return true
	})
	return first, true
}

// inOrder is the queue in the order in which it is served.
func (x *Waitable[S, E]) inOrder() (all []wait) {
	x.fifo.each(func(w wait) bool {
		all = append(all, w)
		return true
	})
	slices.SortStableFunc(all, func(v, w wait) int {
		e, f := unpackExtra[E](v.Wanted().Load()), unpackExtra[E](w.Wanted().Load())
		switch {
		case x.rules.Before(e, f):
			return -1
		case x.rules.Before(f, e):
			return 1
		}
		return 0
	})
	return all
}

// settle serves the waits, or ends them if x is not recoverable.
func (x *Waitable[S, E]) settle(b *wakes) {
	x.guarded(func() { x.serveAll(b) })
	if x.lost() {
		x.mon.endAll(b, &x.fifo, waitableLost, 0)
	}
}

func (x *Waitable[S, E]) serveAll(b *wakes) {
	w, ok := x.next()
	if x.rules.Before == nil {
		for ok && x.serve(b, w) {
			w, ok = x.next()
		}
		return
	}
	if !ok || !x.serve(b, w) {
		return
	}
	// To look for the first each time would take the square of their number.
	for _, w := range x.inOrder() {
		if !x.serve(b, w) {
			return
		}
	}
}

// serve ends the wait that is next, and reports false if it has to go on.
func (x *Waitable[S, E]) serve(b *wakes, w wait) bool {
	switch {
	case !x.mon.waiting(w):
		x.detach(w)
		x.mon.drop(w)
		return true
	case x.words.stopped.Load() != 0:
		if x.mon.end(b, w, waitableStopped, 0) {
			x.mon.account(w, nil)
		}
		return true
	}
	s := x.state()
	var c change
	if !x.claim(&s, w.Wanted().Load()) || !x.hold(&c, w.Owner(), w.Wanted().Load()) {
		return false
	}
	if x.mon.end(b, w, waitableGranted, 0) {
		x.change(&c, &s)
		x.mon.account(w, &c)
	}
	return true
}

// account makes the change of a grant whose granter died before it could.
func (x *Waitable[S, E]) account(w wait) {
	var c change
	if fate(w.Extra().Load()).result() == waitableGranted {
		x.guarded(func() {
			s := x.state()
			if x.claim(&s, w.Wanted().Load()) && x.hold(&c, w.Owner(), w.Wanted().Load()) {
				x.change(&c, &s)
			} else {
				c.n = 0
			}
		})
	}
	x.mon.account(w, &c)
}

func (x *Waitable[S, E]) detach(w wait)          { x.fifo.detach(w) }
func (x *Waitable[S, E]) requeue(w wait)         { x.fifo.requeue(w) }
func (x *Waitable[S, E]) each(f func(wait) bool) { x.fifo.each(f) }
func (x *Waitable[S, E]) clear()                 { x.fifo.clear() }

func (x *Waitable[S, E]) bury(dead func(arena.Name) bool) {
	undo := x.rules.Bury
	if undo == nil {
		undo = x.rules.Release
	}
	if undo == nil {
		return
	}
	x.guarded(func() {
		for _, h := range x.holds {
			if h.count.Load() > waitableCount {
				h.count.Store(0) // a peer wrote that
			}
			// One by one: a claim is undone together with its count.
			of := arena.Name(h.name.Load() & arena.NameMask)
			for n := h.count.Load(); n > 0 && dead(of) && x.mon.ended(of); n-- {
				s := x.state()
				undo(&s, unpackExtra[E](h.extra.Load()))
				var c change
				c.set(&h.count, n-1)
				x.change(&c, &s)
				x.mon.commit(&c)
			}
		}
	})
}

func (x *Waitable[S, E]) holders(f func(arena.Name)) {
	for _, h := range x.holds {
		if h.count.Load() != 0 {
			f(arena.Name(h.name.Load() & arena.NameMask))
		}
	}
}

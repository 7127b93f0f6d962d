package prims

import (
	"slices"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("waitable.wait.accepted")

func (x *Waitable[S, E]) claim(s *S, extra uint64) bool {
	return x.rules.Claim(s, unpackExtra[E](extra))
}

// find returns the entry for the claims of participant n for one value of E, which extra contains, or nil if there
// is none.
func (x *Waitable[S, E]) find(n arenakernel.ParticipantID, extra uint64) *waitableHold {
	for _, h := range x.holds {
		if h.count.Load() != 0 && h.name.Load() == uint64(n) && h.extra.Load() == extra {
			return h
		}
	}
	return nil
}

// held reports whether processes hold claims, that is, whether a claim lasts until it is released or its process
// dies.
func (x *Waitable[S, E]) held() bool { return x.rules.Release != nil || x.rules.OnDeath != nil }

// noted reports whether a claim needs an entry in the array of waitableHold. It does if processes hold claims. It
// also does if the claim is granted to a wait, which may die before it accepts the claim.
func (x *Waitable[S, E]) noted(granted bool) bool {
	return x.held() || granted && x.rules.Undo != nil
}

// place finds an entry of the array of waitableHold for one more claim of participant n: the entry for equal claims
// of n, or a free one. It returns the number of the entry, counted from 1, or 0 if the claim needs no entry. ok is
// false if there is no room.
func (x *Waitable[S, E]) place(n arenakernel.ParticipantID, extra uint64, granted bool) (place uint32, ok bool) {
	if !x.noted(granted) {
		return 0, true
	}
	free := uint32(0)
	for i, h := range x.holds {
		switch {
		case h.free():
			if free == 0 {
				free = uint32(i + 1)
			}
		case h.name.Load() == uint64(n) && h.extra.Load() == extra:
			return uint32(i + 1), h.count.Load() < waitableCount
		}
	}
	return free, free != 0 || !x.held() // a claim that is not held can do without an entry
}

// note adds to the change c that participant n has one more claim, in the entry whose number is place.
func (x *Waitable[S, E]) note(c *change, place uint32, n arenakernel.ParticipantID, extra uint64, granted bool) {
	if place < 1 || int(place) > len(x.holds) {
		return
	}
	h := x.holds[place-1]
	count := uint64(0)
	if h.name.Load() == uint64(n) && h.extra.Load() == extra {
		count = h.count.Load()
	} else {
		c.set(&h.name, uint64(n))
		c.set(&h.extra, extra)
	}
	if x.held() {
		c.set(&h.count, count+1)
	}
	if granted {
		c.set(&h.granted, h.granted.Load()+1)
	}
}

// accept records that a wait of this process has accepted the claim that it was granted. The claim is in the entry
// whose number is place.
func (x *Waitable[S, E]) accept(place uint32) {
	if place >= 1 && int(place) <= len(x.holds) {
		x.holds[place-1].accepted.Add(1)
		crashpoint.Hit("waitable.wait.accepted")
	}
}

// unaccepted returns how many claims of an entry were granted to waits that have not accepted them. A wait may
// accept its claim before the grant is recorded; then the result is 0, not negative.
func (h *waitableHold) unaccepted() uint64 {
	if n := int64(h.granted.Load() - h.accepted.Load()); n > 0 {
		return min(uint64(n), waitableCount) // bounded, because a peer may have written the counts
	}
	return 0
}

// free reports whether an entry has no claims and can be used for others.
func (h *waitableHold) free() bool {
	return h.count.Load() == 0 && h.granted.Load() == h.accepted.Load()
}

// next returns the wait that is served next, by the order of the rules.
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

// inOrder returns the waits of the queue in the order in which they are served.
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

// resolve ends the waits that can go on, in order. If x is not recoverable, it ends all waits.
func (x *Waitable[S, E]) resolve(b *wakes) {
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
	// Call inOrder only once, because a search for the first wait in each iteration would take quadratic time.
	for _, w := range x.inOrder() {
		if !x.serve(b, w) {
			return
		}
	}
}

// serve ends the wait w, which is the next in order. It reports false if w cannot end yet.
func (x *Waitable[S, E]) serve(b *wakes, w wait) bool {
	switch {
	case !x.mon.waiting(w):
		x.detach(w)
		x.mon.releaseNode(w)
		return true
	case x.words.stopped.Load() != 0:
		if x.mon.end(b, w, waitableStopped, 0) {
			x.mon.account(w, nil)
		}
		return true
	}
	s, wanted, owner := x.state(), w.Wanted().Load(), w.Owner()
	if !x.claim(&s, wanted) {
		return false
	}
	place, ok := x.place(owner, wanted, true)
	if !ok {
		return false
	}
	if x.mon.end(b, w, waitableGranted, place) {
		var c change
		x.note(&c, place, owner, wanted, true)
		x.change(&c, &s)
		x.mon.account(w, &c)
	}
	return true
}

// account changes the state for a grant, if the process that granted the wait died before it had changed the state.
func (x *Waitable[S, E]) account(w wait) {
	var c change
	if f := outcome(w.Extra().Load()); f.result() == waitableGranted {
		x.guarded(func() {
			s, wanted := x.state(), w.Wanted().Load()
			if x.claim(&s, wanted) {
				x.note(&c, f.aux(), w.Owner(), wanted, true)
				x.change(&c, &s)
			}
		})
	}
	x.mon.account(w, &c)
}

func (x *Waitable[S, E]) detach(w wait)          { x.fifo.detach(w) }
func (x *Waitable[S, E]) requeue(w wait)         { x.fifo.requeue(w) }
func (x *Waitable[S, E]) each(f func(wait) bool) { x.fifo.each(f) }
func (x *Waitable[S, E]) clear()                 { x.fifo.clear() }

// reap undoes the claims of dead participants. Claims that a participant had not accepted are undone at once. The
// other claims are undone when the process of the participant has ended.
func (x *Waitable[S, E]) reap(dead func(arenakernel.ParticipantID) bool) {
	lost, unknown := x.rules.OnDeath, x.rules.Undo
	if lost == nil {
		lost = x.rules.Release
	}
	if unknown == nil {
		unknown = x.rules.Release
	}
	if unknown == nil {
		unknown = lost
	}
	if unknown == nil {
		return
	}
	if lost == nil {
		lost = unknown
	}
	x.guarded(func() {
		for _, h := range x.holds {
			if h.count.Load() > waitableCount {
				h.count.Store(0) // only a peer that overwrote the entry can have written this
			}
			of := arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask)
			if h.free() || !dead(of) {
				continue
			}
			n, u := h.count.Load(), h.unaccepted()
			if x.held() {
				u = min(u, n)
			}
			for ; u > 0; u-- {
				n = max(n, 1) - 1
				x.undo(h, unknown, n, u-1)
			}
			for ; n > 0 && x.mon.ended(of); n-- {
				x.undo(h, lost, n-1, 0)
			}
			h.granted.Store(h.accepted.Load()) // a peer may have written any value
		}
	})
}

// undo undoes one claim of an entry by a call of the given rule. Afterwards the entry has count held claims, and
// the given number of claims that were granted and not accepted.
func (x *Waitable[S, E]) undo(h *waitableHold, rule func(s *S, e E), count, unaccepted uint64) {
	s := x.state()
	rule(&s, unpackExtra[E](h.extra.Load()))
	var c change
	c.set(&h.count, count)
	c.set(&h.granted, h.accepted.Load()+unaccepted)
	x.change(&c, &s)
	x.mon.commit(&c)
}

func (x *Waitable[S, E]) holders(f func(arenakernel.ParticipantID)) {
	for _, h := range x.holds {
		if !h.free() {
			f(arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask))
		}
	}
}

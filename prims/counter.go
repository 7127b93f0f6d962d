package prims

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("counter.add.counted")
	_ = crashpoint.Register("counter.done.counted")
)

// counter is what a WaitGroup and a Latch are: a counter of what is still to be done,
// waiters for its 0, and a record of how much of it each participant has undertaken.
//
// A decrement by a participant counts for what it has undertaken itself, as long as there
// is some, and then for others. So its share is never negative, and the work that it
// undertook last is there when it dies. When the counter becomes 0 no participant owes
// anything: all shares are void.
//
// The work of a dead participant is owed for ever, unless others do it all, another process
// takes it over, or Reset forgets it. While work is owed all waits end with ErrOwnerDead.
type counter struct {
	mon    *monitor
	fifo   fifo
	words  *counterWords
	left   *atomic.Uint64 // the counter, for fast paths; never 0 for a closed handle
	shares []*counterShare
	a      *arenakernel.Arena
	object arenakernel.Object
	name   arenakernel.ParticipantID
	key    race.Key
	op     string // of waits, in errors
}

func buildCounter(a *arenakernel.Arena, o arenakernel.Object, op string, bare bool) *counter {
	w := arenakernel.At[counterWords](a, o.Body)
	t := &counter{words: w, shares: counterShares(a, o.Body), a: a, object: o, name: a.Self(), op: op}
	t.mon = buildMonitor(a, o, o.Body, t, bare)
	t.fifo = fifo{t.mon, &w.queue}
	t.key = t.mon.key
	t.left = &w.count
	t.mon.opening.end = t.end
	return t
}

// end takes the counter away from the fast paths.
func (t *counter) end() {
	t.mon.queueLock.end()
	redirect(&t.left, &closedCount)
}

func (t *counter) count() int64 { return int64(t.words.count.Load()) }

// mine is this participant's share, with the queue lock held.
func (t *counter) mine() *counterShare {
	h := t.shares[t.name.Slot()-1]
	if h.name.Load() != uint64(t.name) || h.epoch.Load() != t.words.epoch.Load() {
		t.inherit(h)
	}
	return h
}

// inherit makes h, the share of this participant's slot, this participant's.
func (t *counter) inherit(h *counterShare) {
	if h.name.Load() != uint64(t.name) {
		t.fold(h)
	}
	// Void or 0 at each step.
	storeWord(&h.own, 0)
	storeWord(&h.claimed, 0)
	storeWord(&h.name, uint64(t.name))
	storeWord(&h.epoch, t.words.epoch.Load())
}

// has is what a share is worth.
func (t *counter) has(h *counterShare) uint64 {
	if h.epoch.Load() != t.words.epoch.Load() {
		return 0
	}
	return h.own.Load()
}

// fold makes what a dead participant has what the dead owe.
func (t *counter) fold(h *counterShare) {
	own := t.has(h)
	if own == 0 {
		return
	}
	var c change
	c.set(&t.words.owed, t.words.owed.Load()+own)
	c.set(&t.words.dead, h.name.Load())
	c.set(&h.own, 0)
	t.mon.commit(&c)
}

// add adds n to the counter, as work of this participant, with the queue lock held.
// It reports false if the counter cannot be so high.
func (t *counter) add(n uint64) bool {
	count := t.words.count.Load()
	if n > math.MaxInt64-min(count, math.MaxInt64) {
		return false
	}
	h := t.mine()
	if own := h.own.Load(); h.claimed.Load() > own {
		storeWord(&h.claimed, own) // what is added now, others may claim
	}
	storeWord(&h.own, h.own.Load()+n)
	crashpoint.Hit("counter.add.counted")
	storeWord(&t.words.count, count+n)
	return true
}

// done takes n off the counter, with the queue lock held, and reports whether the
// counter became 0. ok is false when there is not so much.
func (t *counter) done(n uint64) (zero, ok bool) {
	w := t.words
	count := w.count.Load()
	switch {
	case n > count:
		return false, false
	case n == 0:
		return false, true
	case n == count:
		t.allDone()
		return true, true
	}
	h := t.mine()
	own := h.own.Load()
	switch {
	case own >= n:
		storeWord(&h.own, own-n)
	case own == 0:
		storeWord(&w.others, w.others.Load()-n)
	default:
		var c change
		c.set(&h.own, 0)
		c.set(&w.others, w.others.Load()-(n-own))
		t.mon.commit(&c)
	}
	crashpoint.Hit("counter.done.counted")
	storeWord(&w.count, count-n)
	return false, true
}

// allDone makes the counter 0.
func (t *counter) allDone() {
	w := t.words
	if w.others.Load() == 0 && w.owed.Load() == 0 {
		storeWord(&w.epoch, w.epoch.Load()+1) // this alone makes the sum 0
	} else {
		var c change
		c.set(&w.others, 0)
		c.set(&w.owed, 0)
		c.set(&w.dead, 0)
		c.set(&w.epoch, w.epoch.Load()+1)
		t.mon.commit(&c)
	}
	crashpoint.Hit("counter.done.counted")
	race.ReleaseMerge(t.key)
	// sync(counter.zero): release
	w.count.Store(0)
}

// finish is done as a call of its own; it reports false if there is not so much.
func (t *counter) finish(n uint64) bool {
	ok, err := t.tryFinish(n)
	if err != nil {
		panic(err)
	}
	return ok
}

// tryFinish is finish for a call that can return an error.
func (t *counter) tryFinish(n uint64) (ok bool, err error) {
	if err := t.mon.enter(nil); err != nil {
		return false, err
	}
	zero, ok := t.done(n)
	if zero && !t.fifo.empty() {
		t.mon.resolveAndLeave()
	} else {
		t.mon.leave(nil)
	}
	return ok, nil
}

// enter takes the queue lock for a call that has no way to return an error.
func (t *counter) enter() {
	if err := t.mon.enter(nil); err != nil {
		panic(err)
	}
}

// zero reports whether the counter is 0.
func (t *counter) zero() bool {
	// sync(counter.zero): acquire
	if t.words.count.Load() != 0 {
		return false
	}
	race.Acquire(t.key)
	return true
}

// waitOrPanic is wait for callers that cannot return an error.
//
//go:noinline
func (t *counter) waitOrPanic() {
	if err := t.wait(nil); err != nil {
		panic(err)
	}
}

// wait waits until the counter is 0.
func (t *counter) wait(ctx context.Context) error {
	if err := t.mon.opening.error(t.op); err != nil {
		return err
	}
	if t.zero() {
		return nil
	}
	if err := t.mon.begin(); err != nil {
		return err
	}
	defer t.mon.finish()
	if err := t.mon.enter(ctx); err != nil {
		return err
	}
	var err error
	waitNode, trouble := t.mon.enqueue(ctx, 0, 0, func() bool {
		switch {
		case t.words.count.Load() == 0:
			return true
		case t.words.owed.Load() != 0:
			err = t.ownerDead(uint32(t.words.dead.Load()))
			return true
		}
		return false
	})
	if waitNode == nil || trouble != nil {
		if trouble != nil {
			err = trouble
		}
		return err
	}
	f, err := t.mon.await(ctx, waitNode)
	if err == nil && f.result() == outcomeDead {
		return t.ownerDead(f.aux())
	}
	return err
}

func (t *counter) ownerDead(name uint32) error {
	return t.mon.fail(t.op, shmsync.ErrOwnerDead, t.a.Who(arenakernel.ParticipantID(name&arenakernel.ParticipantIDMask)), "it died and left something undone")
}

// claim makes n of what is expected this participant's own: of what the dead owe
// first, then of what nobody has, and then, if fromOthers, of what other participants
// have. It reports false if there is not so much.
func (t *counter) claim(n uint64, fromOthers bool) bool {
	t.enter()
	w := t.words
	free := func() uint64 {
		sum := uint64(max(int64(w.others.Load()), 0)) + w.owed.Load()
		if !fromOthers {
			return sum
		}
		mine := t.mine()
		for _, h := range t.shares {
			if h != mine {
				sum += t.claimable(h)
			}
		}
		count := w.count.Load() // if others is negative, not all that others have is left
		return min(sum, count-min(mine.own.Load(), count))
	}
	if fromOthers || n > free() {
		// The process that had the claim may be dead, and this process may have replaced it.
		t.holders(func(n arenakernel.ParticipantID) { t.a.Dead(n) })
		if err := t.mon.reapAndEnter(nil); err != nil {
			panic(err)
		}
	}
	if n > free() {
		t.mon.leave(nil)
		return false
	}
	if w.owed.Load() != 0 && !t.a.AllGone() {
		// The caller takes over work of the dead, and they may still write to its data.
		t.mon.leave(nil)
		if err := t.mon.awaitAllGone(); err != nil {
			panic(err)
		}
		return t.claim(n, fromOthers)
	}
	h := t.mine()
	owed := w.owed.Load()
	of := min(n, owed)
	nobodys := n - of
	if fromOthers {
		nobodys = min(nobodys, uint64(max(int64(w.others.Load()), 0)))
	}
	var c change
	c.set(&w.owed, owed-of)
	if of == owed {
		c.set(&w.dead, 0)
	}
	c.set(&w.others, w.others.Load()-nobodys)
	h.take(&c, of+nobodys)
	t.mon.commit(&c)
	for rest := n - of - nobodys; rest > 0; {
		// The loop ends: each turn takes all from a share, or all that is left to take.
		from := t.most(h)
		if from == nil {
			break // a peer overwrote the shares
		}
		k := min(rest, t.claimable(from))
		c = change{}
		c.set(&from.own, from.own.Load()-k)
		h.take(&c, k)
		t.mon.commit(&c)
		rest -= k
	}
	t.mon.leave(nil)
	return true
}

// take adds to a change that the participant of h claims n.
func (h *counterShare) take(c *change, n uint64) {
	own := h.own.Load()
	c.set(&h.own, own+n)
	c.set(&h.claimed, min(h.claimed.Load(), own)+n)
}

// claimable is how much of a share others may claim.
func (t *counter) claimable(h *counterShare) uint64 {
	own := t.has(h)
	return own - min(h.claimed.Load(), own)
}

// most is the share, other than mine, of which most may be claimed; nil if there is none.
func (t *counter) most(mine *counterShare) (most *counterShare) {
	for _, h := range t.shares {
		if h != mine && t.claimable(h) > 0 && (most == nil || t.claimable(h) > t.claimable(most)) {
			most = h
		}
	}
	return most
}

// reset forgets what the dead owe, and reports whether that was anything.
func (t *counter) reset() bool {
	t.enter()
	if t.mon.deaths.Load() != t.a.Deaths() {
		if err := t.mon.reapAndEnter(nil); err != nil {
			panic(err)
		}
	}
	w := t.words
	if w.owed.Load() != 0 && !t.a.AllGone() {
		t.mon.leave(nil)
		if err := t.mon.awaitAllGone(); err != nil {
			panic(err)
		}
		return t.reset()
	}
	count, owed := w.count.Load(), w.owed.Load()
	switch {
	case owed == 0:
		t.mon.leave(nil)
		return false
	case owed >= count:
		t.allDone() // others have done some of it
	default:
		var c change
		c.set(&w.owed, 0)
		c.set(&w.dead, 0)
		t.mon.commit(&c)
		storeWord(&w.count, count-owed)
	}
	t.mon.resolveAndLeave()
	return true
}

func (t *counter) resolve(b *wakes) {
	switch {
	case t.fifo.empty():
	case t.words.count.Load() == 0:
		t.mon.endAll(b, &t.fifo, outcomeOpen, 0)
	case t.words.owed.Load() != 0:
		t.mon.endAll(b, &t.fifo, outcomeDead, uint32(t.words.dead.Load()))
	}
}

func (t *counter) account(w wait)           { t.mon.account(w, nil) }
func (t *counter) detach(w wait)            { t.fifo.detach(w) }
func (t *counter) requeue(w wait)           { t.fifo.requeue(w) }
func (t *counter) each(f func(w wait) bool) { t.fifo.each(f) }

// clear empties the queue, and counts anew.
func (t *counter) clear() {
	t.fifo.clear()
	sum := t.words.others.Load() + t.words.owed.Load()
	for _, h := range t.shares {
		sum += t.has(h)
	}
	race.ReleaseMerge(t.key)
	// sync(counter.zero): release
	t.words.count.Store(sum)
}

func (t *counter) reap(gone func(arenakernel.ParticipantID) bool) {
	for _, h := range t.shares {
		if t.has(h) != 0 && gone(arenakernel.ParticipantID(h.name.Load()&arenakernel.ParticipantIDMask)) {
			t.fold(h)
		}
	}
}

func (t *counter) holders(f func(arenakernel.ParticipantID)) {
	for _, h := range t.shares {
		if t.has(h) != 0 {
			f(arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask))
		}
	}
}

// trouble is why waits fail, and the participant whose death is the cause.
func (t *counter) trouble() (error, *shmsync.Identity) {
	if t.words.owed.Load() == 0 {
		return nil, nil
	}
	return shmsync.ErrOwnerDead, t.a.Who(arenakernel.ParticipantID(t.words.dead.Load() & arenakernel.ParticipantIDMask))
}

// share is what this participant has undertaken and not done.
func (t *counter) share() int64 {
	if h := t.shares[t.name.Slot()-1]; h.name.Load() == uint64(t.name) {
		return int64(t.has(h))
	}
	return 0
}

package prims

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("event.set.stored")
	_ = crashpoint.Register("event.hand.taken")
	_ = crashpoint.Register("event.hand.given")
	_ = crashpoint.Register("event.spare.taken")
	_ = crashpoint.Register("event.wait.announced")
	_ = crashpoint.Register("event.wait.acked")
	_ = crashpoint.Register("event.pass.passed")
)

// autoEvent is an Event with automatic reset. A Set makes a token, unless there is one, and one
// wait takes the token.
//
// A Set and a waiter that begins to wait form a store-load pair (Dekker): next is not 0 while a
// wait is queued.
type autoEvent struct {
	mon   *monitor
	words *autoEventWords
	state *atomic.Uint64
	next  *atomic.Uint64
	fifo  fifo
	own   *eventRecord // the share of this process; nil in the handle of a reaper
	known atomic.Pointer[eventShares]
	// records is the latest slot record; each has a share.
	records *atomic.Uint32
	baseOff arenakernel.Offset // of the record that is the base; 0 if there is none
	name    arenakernel.ParticipantID
	a       *arenakernel.Arena
	object  arenakernel.Object
}

// nobody and anybody are values of the word next.
const (
	nobody  uint64 = 0
	anybody uint64 = math.MaxUint64
)

// Where the token of a wait came from.
const (
	outcomeHand uint32 = iota
	outcomeSpare
)

func (x *autoEvent) load() tokenState { return tokenState(x.state.Load()) }

func (x *autoEvent) swap(s tokenState, place tokenState) bool {
	return x.state.CompareAndSwap(uint64(s), uint64(s.to(place)))
}

// alone reports whether the state was s at a moment when no wait was queued.
func (x *autoEvent) alone(s tokenState) bool {
	// sync(event.announce): acquire
	return x.next.Load() == nobody && x.load() == s
}

// set is Set.
func (x *autoEvent) set() error {
	race.ReleaseMerge(x.mon.key)
	done := false
	switch s := x.load(); s.place() {
	case tokenSet:
		if x.alone(s) {
			return nil // lin: at the check for queued waits; the Event was set before and after it
		}
	case tokenUnset:
		// sync(event.set): release
		// lin: here if nobody is queued.
		if done = x.swap(s, tokenSet); done && x.next.Load() == nobody {
			return nil
		}
	}
	if done {
		crashpoint.Hit("event.set.stored")
	}
	return x.setSlow(done)
}

// setSlow is set while a wait is queued or the token is on its way. done says that the Event is
// set already and the token only has to be handed out.
func (x *autoEvent) setSlow(done bool) error {
	if err := x.mon.enter(nil); err != nil {
		return err
	}
	b := takeWakes()
	for {
		x.resolve(b)
		// Now there is no token, or no wait is queued.
		s := x.load()
		if done || s.place() == tokenSet || x.mon.broken.Load() {
			break
		}
		done = x.swap(s, tokenSet)
	}
	x.mon.leave(b)
	return nil
}

// reset is Reset.
func (x *autoEvent) reset() (did bool, err error) {
	s := x.load()
	if s.place() == tokenUnset {
		return false, nil
	}
	if s.place() == tokenSet && x.next.Load() == nobody && x.swap(s, tokenUnset) {
		return true, nil
	}
	if err := x.mon.enter(nil); err != nil {
		return false, err
	}
	b := takeWakes()
	x.resolve(b)
	for s := x.load(); s.place() == tokenSet && !did; s = x.load() {
		did = x.swap(s, tokenUnset)
	}
	x.mon.leave(b)
	return did, nil
}

// isSet is IsSet.
func (x *autoEvent) isSet() bool {
	s := x.load()
	if s.place() == tokenSet && !x.alone(s) && x.mon.tryEnter() {
		// The token may be on its way to a waiter, or the last waiter for it may have left.
		b := takeWakes()
		x.resolve(b)
		s = x.load()
		x.mon.leave(b)
	}
	return s.place() == tokenSet
}

// claim takes the token if it is there and no wait is queued for it.
func (x *autoEvent) claim() bool {
	s := x.load()
	// sync(event.set): acquire
	if s.place() != tokenSet || x.next.Load() != nobody || !x.swap(s, tokenUnset) {
		return false
	}
	race.Acquire(x.mon.key)
	return true
}

// tryWait is TryWait.
func (x *autoEvent) tryWait() bool {
	if x.claim() {
		return true
	}
	if x.load().place() == tokenUnset || !x.mon.tryEnter() {
		return false
	}
	b := takeWakes()
	x.mon.reapIfDue(b)
	x.resolve(b)
	ok := x.claim()
	x.mon.leave(b)
	return ok
}

// register begins a wait. The call keeps the handle open already. If it returns no wait node, there is nothing
// to wait for, and err says why. If take is false, register does not claim a token that is there: the wait is
// handed the token, and can pass it on.
func (x *autoEvent) register(ctx context.Context, take bool) (waitNode *park.WaitNode, err error) {
	if ctx != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	m := x.mon
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	b := takeWakes()
	for {
		m.reapIfDue(b)
		x.resolve(b)
		if x.shares().err != nil {
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			return nil, x.corruptShares()
		}
		if take && x.claim() {
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			return nil, nil
		}
		var again bool
		if waitNode, again, err = m.waitNode(ctx, waitNode); err != nil {
			m.wake(b)
			return nil, err
		}
		if !again {
			break
		}
	}
	x.inherit()
	m.join(waitNode, 0, 0)
	crashpoint.Hit("event.wait.announced")
	// Check a second time: a Set before this has not seen that the wait is queued.
	x.resolve(b)
	m.leave(b)
	return waitNode, nil
}

// wait is Wait after a failed claim.
func (x *autoEvent) wait(ctx context.Context) error {
	if err := x.mon.begin(); err != nil {
		return err
	}
	defer x.mon.finish()
	waitNode, err := x.register(ctx, true)
	if waitNode == nil {
		return err
	}
	if _, err = x.mon.await(ctx, waitNode); err == nil {
		x.ack()
	}
	return err
}

// async is WaitAsync.
func (x *autoEvent) async() *Pending {
	if x.claim() {
		return resolved(nil)
	}
	if err := x.mon.begin(); err != nil {
		return resolved(err)
	}
	defer x.mon.finish() // when it runs, the wait node keeps the handle open
	waitNode, err := x.register(nil, true)
	if waitNode == nil {
		return resolved(err)
	}
	return x.mon.pend("event.wait", waitNode, func(outcome) error {
		x.ack()
		return nil
	})
}

// ack records that this process has seen a token that was handed to it.
func (x *autoEvent) ack() {
	x.own.acked.Add(1)
	crashpoint.Hit("event.wait.acked")
}

// watch begins a wait for WaitAny and the like. The wait is in the queue, and passes its token on
// unless it is chosen.
func (x *autoEvent) watch(notify func()) (watcher, error) {
	if err := x.mon.begin(); err != nil {
		return nil, err
	}
	defer x.mon.finish() // when it runs, the wait node keeps the handle open
	waitNode, err := x.register(nil, false)
	if err != nil {
		return nil, err
	}
	w, err := x.mon.watch(waitNode, notify, func(outcome) (bool, error) {
		x.ack()
		return true, nil
	}, x.pass)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// pass gives back a token that was handed to a wait of this process. The wait has ended, and the
// token was not acked. If this process dies before pass, the reap gives the token back.
func (x *autoEvent) pass() {
	if x.mon.enter(nil) != nil {
		return // this process leaves, and will be reaped, or the Event is corrupt
	}
	b := takeWakes()
	x.resolve(b) // in state taken spare has no meaning, so that state must end first
	if h := x.own; h.unknown() > 0 && h.name.Load() == uint64(x.name) {
		var c change
		c.set(&h.handed, h.handed.Load()-1)
		c.set(&x.words.spare, x.words.spare.Load()+1)
		x.mon.commit(&c)
		crashpoint.Hit("event.pass.passed")
		x.resolve(b)
	}
	x.mon.leave(b)
}

// resolve hands out tokens while there are tokens and queued waits. If tokens are left, it leaves
// one where it can be claimed.
func (x *autoEvent) resolve(b *wakes) {
	for !x.mon.broken.Load() {
		w, queued := x.fifo.head()
		if queued && !x.mon.waiting(w) {
			x.detach(w)
			x.mon.releaseNode(w)
			continue
		}
		s := x.load()
		switch {
		case s.place() == tokenTaken:
			storeWord(&x.words.spare, 0)
			x.swap(s, tokenSet)
		case queued && x.lacksShareOf(w):
			return // the check of the participant that waits hands the token out
		case queued && s.place() == tokenHand:
			x.grant(b, w, outcomeHand)
		case queued && x.words.spare.Load() > 0:
			x.grant(b, w, outcomeSpare)
		case queued && s.place() == tokenSet:
			x.swap(s, tokenHand)
			crashpoint.Hit("event.hand.taken")
		case queued:
			return
		case s.place() == tokenHand:
			x.swap(s, tokenSet)
		case x.words.spare.Load() > 0:
			x.swap(s, tokenTaken)
			crashpoint.Hit("event.spare.taken")
		default:
			if x.next.Load() != nobody {
				x.next.Store(nobody)
			}
			return
		}
	}
}

func (x *autoEvent) grant(b *wakes, w wait, from uint32) {
	if x.mon.end(b, w, from, 0) {
		x.account(w)
	}
}

// account records that the token was handed to the participant of a wait that has ended, and
// removes the token from its place. If this is a replay after a death, the token in hand may
// already be removed.
func (x *autoEvent) account(w wait) {
	owner := w.Owner()
	spare := x.words.spare.Load()
	if outcome(w.Extra().Load()).result() == outcomeHand {
		if s := x.load(); s.place() == tokenHand {
			x.swap(s, tokenUnset)
			crashpoint.Hit("event.hand.given")
		}
	} else if spare > 0 {
		spare--
	}
	var c change
	// A participant whose wait is queued has called inherit. If the names differ, a peer wrote one of them.
	if h := x.shareOf(owner.Slot()); h != nil && h.name.Load() == uint64(owner) {
		c.set(&h.handed, h.handed.Load()+1)
	}
	if spare != x.words.spare.Load() {
		c.set(&x.words.spare, spare)
	}
	x.mon.account(w, &c)
}

// inherit gives the share of its slot to this participant before it waits, because it may ack a token
// before account has counted the token. The queue lock is held.
func (x *autoEvent) inherit() {
	h := x.own
	if h.name.Load() == uint64(x.name) {
		return
	}
	var c change
	c.set(&h.name, uint64(x.name))
	c.set(&h.handed, h.acked.Load())
	c.set(&x.words.spare, x.words.spare.Load()+h.unknown())
	x.mon.commit(&c)
}

// unknown is how many tokens were handed to the participant and not acked by it.
func (h *eventRecord) unknown() uint64 {
	if n := int64(h.handed.Load() - h.acked.Load()); n > 0 {
		return min(uint64(n), unknownMost)
	}
	return 0 // a peer wrote the counters
}

// unknownMost bounds the number, which a peer may have written.
const unknownMost = 1 << 32

// clear empties the queue. Until the next resolve every Set looks for queued waits.
func (x *autoEvent) clear() {
	x.fifo.clear()
	x.next.Store(anybody)
}

func (x *autoEvent) requeue(w wait) {
	x.fifo.requeue(w)
	if x.next.Load() == nobody {
		// sync(event.announce): release
		x.next.Store(anybody)
	}
}

func (x *autoEvent) detach(w wait)          { x.fifo.detach(w) }
func (x *autoEvent) each(f func(wait) bool) { x.fifo.each(f) }

// reap takes back the tokens that participants did not ack before they were gone.
func (x *autoEvent) reap(dead func(arenakernel.ParticipantID) bool) {
	for _, h := range x.shares().all {
		n, of := h.unknown(), arenakernel.ParticipantID(h.name.Load()&arenakernel.ParticipantIDMask)
		if n > 0 && dead(of) && x.mon.ended(of) {
			var c change
			c.set(&h.handed, h.acked.Load())
			c.set(&x.words.spare, x.words.spare.Load()+n)
			x.mon.commit(&c)
		}
	}
}

func (x *autoEvent) holders(f func(arenakernel.ParticipantID)) {
	for _, h := range x.shares().all {
		if h.unknown() > 0 {
			f(arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask))
		}
	}
}

// check is called ten times a second while a goroutine of this process waits.
func (x *autoEvent) check() {
	x.mon.check()
	if p := x.load().place(); (p != tokenUnset || x.words.spare.Load() > 0) && x.next.Load() != nobody && x.mon.tryEnter() {
		b := takeWakes()
		x.resolve(b)
		x.mon.leave(b)
	}
}

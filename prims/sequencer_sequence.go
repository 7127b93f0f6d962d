package prims

import (
	"context"
	"math"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("sequencer.count.counted")
	_ = crashpoint.Register("sequencer.wait.announced")
	_ = crashpoint.Register("sequencer.resolve.batch")
	_ = crashpoint.Register("sequencer.cancel.marked")
	_ = crashpoint.Register("sequencer.stop.marked")
)

// sequence is a counter with waiters, each of which waits for a token. It implements Sequencer.
//
// The counter changes without the queue lock. A count and a beginning wait form a store-load pair
// (Dekker):
//
//	count                     wait, with the queue lock
//	value := value + 1        put itself into the heap
//	load next                 next := the smallest token
//	if value has reached it:  load value
//	  queue lock, resolve     if it has reached the token: resolve
//
// Either the wait sees the count or the count sees the token. Without its second load of value, a
// wait would be lost that comes after the first load of value and whose store of next comes after
// the count's load of next. next may stand for a smaller token than that of any wait, never for a
// greater one.
type sequence struct {
	mon    *monitor
	words  *sequenceWords
	waits  tokenHeap
	doomed tokenHeap
	a      *arenakernel.Arena
	object arenakernel.Object
	op     string // name of its waits, for errors
}

// How a wait in a sequence ends.
const (
	outcomeReached uint32 = iota
	outcomeCanceled
)

// resolveBatch is how many waits a call ends before it releases the queue lock for a moment.
// Otherwise new waiters, and waiters with another token, would have to wait until all waits are
// ended.
const resolveBatch = 64

// nobody and anybody are values of the word next. With nobody no count takes the queue lock. With
// anybody every count takes it.
const (
	nobody  uint64 = 0
	anybody uint64 = math.MaxUint64
)

func buildSequence(a *arenakernel.Arena, o arenakernel.Object, op string, bare bool) *sequence {
	q := &sequence{words: arenakernel.At[sequenceWords](a, o.Body), a: a, object: o, op: op}
	q.mon = buildMonitor(a, o, o.Body, q, bare)
	q.mon.queueLock.alsoCheck = q.check
	q.waits, q.doomed = tokenHeap{q.mon, &q.words.root}, tokenHeap{q.mon, &q.words.doomed}
	return q
}

// reached reports whether the counter has reached token.
func (q *sequence) reached(token uint64) bool {
	// sync(sequencer.count): acquire
	return q.words.value.Load() >= token
}

// counted is called after the counter has become v. If a wait has the token v or a smaller one,
// it ends the waits.
func (q *sequence) counted(v uint64) {
	// sync(sequencer.announce): acquire
	if ^v > q.words.next.Load() {
		return
	}
	crashpoint.Hit("sequencer.count.counted")
	q.mustFinish()
}

// finish ends the waits that have to end, a batch at a time.
func (q *sequence) finish() error {
	for {
		if err := q.mon.enter(nil); err != nil {
			return err
		}
		b := takeWakes()
		more := q.resolveSome(b, resolveBatch)
		q.mon.leave(b)
		if !more {
			return nil
		}
		crashpoint.Hit("sequencer.resolve.batch")
	}
}

func (q *sequence) mustFinish() {
	if err := q.finish(); err != nil {
		panic(err)
	}
}

// resolveSome ends at most most waits, and reports whether there are more to end.
func (q *sequence) resolveSome(b *wakes, most int) (more bool) {
	if q.words.stopped.Load() != 0 {
		q.condemn()
	}
	v, m := q.words.value.Load(), q.mon
	// The cancelled waits come first: the process that cancelled them waits for their end, while
	// the stream of others may never end.
	for w, ok := q.doomed.first(); ok && !m.broken.Load(); w, ok = q.doomed.first() {
		if most--; most < 0 {
			return true
		}
		result := outcomeCanceled
		if w.Wanted().Load() <= v {
			result = outcomeReached
		}
		q.finishOne(b, w, result)
	}
	for w, ok := q.waits.first(); ok && w.Wanted().Load() <= v && !m.broken.Load(); w, ok = q.waits.first() {
		if most--; most < 0 {
			return true // next keeps its value: a count, or a periodic check, finds that there are more
		}
		q.finishOne(b, w, outcomeReached)
	}
	if m.broken.Load() {
		return false // the heap is rebuilt when the queue lock is released, and then every count looks
	}
	// A count beyond the first token may have come after the load above. It saw the previous
	// next, which is not greater, so it takes the queue lock and looks.
	next := nobody
	if w, ok := q.waits.first(); ok {
		next = ^w.Wanted().Load()
	}
	if !m.broken.Load() && q.words.next.Load() != next {
		q.words.next.Store(next)
	}
	return false
}

// finishOne ends one wait, unless its owner is gone.
func (q *sequence) finishOne(b *wakes, w wait, result uint32) {
	if !q.mon.waiting(w) {
		q.detach(w)
		q.mon.releaseNode(w)
		return
	}
	if q.mon.end(b, w, result, 0) {
		q.account(w)
	}
}

// condemn cancels all waits that are queued. A resolve then ends them. The queue lock is held.
func (q *sequence) condemn() {
	if q.words.root.Load() == 0 {
		return
	}
	storeWord(&q.words.canceled, q.mon.words.arrivals.Load())
	crashpoint.Hit("sequencer.cancel.marked")
	q.doomed.join(q.waits)
}

// The rules of a sequence.

func (q *sequence) resolve(b *wakes) { q.resolveSome(b, math.MaxInt) }
func (q *sequence) account(w wait)   { q.mon.account(w, nil) }

func (q *sequence) clear() {
	storeWord(&q.words.root, 0)
	storeWord(&q.words.doomed, 0)
	q.words.next.Store(anybody) // every count takes the queue lock until the next resolve
}

func (q *sequence) requeue(w wait) {
	if w.Stamp().Load() <= q.words.canceled.Load() {
		q.doomed.insert(w)
		return
	}
	q.waits.insert(w)
	// sync(sequencer.announce): release
	if next := ^w.Wanted().Load(); next > q.words.next.Load() {
		q.words.next.Store(next)
	}
}

func (q *sequence) detach(w wait) {
	if arenakernel.Offset(q.words.doomed.Load()) == w.off {
		q.doomed.detach(w)
		return
	}
	q.waits.detach(w)
}

func (q *sequence) each(f func(w wait) bool) {
	on := true
	q.waits.each(func(w wait) bool {
		on = f(w)
		return on
	})
	if on {
		q.doomed.each(f)
	}
}

func (q *sequence) reap(func(arenakernel.ParticipantID) bool) {}
func (q *sequence) holders(func(arenakernel.ParticipantID))   {}

// overdue reports whether waits have to end. The process that counted is about to end them, or it
// is stopped or dead.
func (q *sequence) overdue() bool {
	next := q.words.next.Load()
	return next != nobody && ^q.words.value.Load() <= next || q.words.doomed.Load() != 0 ||
		q.words.stopped.Load() != 0 && q.words.root.Load() != 0
}

// check is called ten times a second while a goroutine of this process waits.
func (q *sequence) check() {
	q.mon.check()
	for q.overdue() && q.mon.tryEnter() {
		b := takeWakes()
		more := q.resolveSome(b, resolveBatch)
		q.mon.leave(b)
		if !more {
			return
		}
	}
}

// register begins a wait for token. The call keeps the handle open already. If it returns no wait node, there
// is nothing to wait for, and err says how the wait ended.
func (q *sequence) register(ctx context.Context, token uint64) (waitNode *park.WaitNode, err error) {
	if ctx != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	m := q.mon
	if err := m.enter(ctx); err != nil {
		if q.reached(token) {
			return nil, nil
		}
		return nil, err
	}
	b := takeWakes()
	for {
		m.reapIfDue(b)
		if reached := q.reached(token); reached || q.words.stopped.Load() != 0 {
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			if reached {
				return nil, nil
			}
			return nil, q.canceledError()
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
	m.join(waitNode, 0, token)
	crashpoint.Hit("sequencer.wait.announced")
	// Check a second time: a count before this has not seen the token.
	more := q.reached(token) && q.resolveSome(b, resolveBatch)
	m.leave(b)
	if more {
		// The wait of this call may be among those that end.
		if err := q.finish(); err != nil && !waitNode.Resolved() {
			s := waitOf(waitNode)
			if waitNode.Abandon() {
				m.cleanUp(s)
				return nil, err
			}
		}
	}
	return waitNode, nil
}

// wait waits until the counter has reached token.
func (q *sequence) wait(ctx context.Context, token uint64) error {
	if err := q.mon.begin(); err != nil {
		return err
	}
	defer q.mon.finish()
	waitNode, err := q.register(ctx, token)
	if waitNode == nil {
		if err == nil {
			race.Acquire(q.mon.key)
		}
		return err
	}
	f, err := q.mon.await(ctx, waitNode)
	switch {
	case err == nil:
		return q.judge(f)
	case q.reached(token):
		race.Acquire(q.mon.key)
		return nil
	}
	return err
}

// async begins a wait and returns its Pending.
func (q *sequence) async(token uint64) *Pending {
	if q.reached(token) {
		race.Acquire(q.mon.key)
		return resolved(nil)
	}
	if err := q.mon.begin(); err != nil {
		return resolved(err)
	}
	defer q.mon.finish() // when it runs, the wait node keeps the handle open
	waitNode, err := q.register(nil, token)
	if waitNode == nil {
		if err == nil {
			race.Acquire(q.mon.key)
		}
		return resolved(err)
	}
	return q.mon.pend(q.op, waitNode, q.judge)
}

// judge turns the outcome of a wait into an error.
func (q *sequence) judge(f outcome) error {
	if f.result() == outcomeReached {
		return nil
	}
	return q.canceledError()
}

func (q *sequence) canceledError() error {
	detail := "the waits were cancelled"
	if q.words.stopped.Load() != 0 {
		detail = "it was stopped"
	}
	return q.mon.fail(q.op, shmsync.ErrCanceled, nil, detail)
}

// cancelAll ends all waits, and stops the sequence if stop is set.
func (q *sequence) cancelAll(stop bool) {
	if err := q.mon.enter(nil); err != nil {
		panic(err)
	}
	race.ReleaseMerge(q.mon.key)
	if stop {
		q.words.stopped.Store(1)
		crashpoint.Hit("sequencer.stop.marked")
	}
	q.condemn()
	q.mon.leave(nil)
	q.mustFinish()
}

// reset sets the counter to v, and reports false if there are waiters.
func (q *sequence) reset(v uint64) bool {
	if err := q.mon.enter(nil); err != nil {
		panic(err)
	}
	b := takeWakes()
	q.mon.sweep(b)
	free := q.words.root.Load()|q.words.doomed.Load() == 0
	if free {
		race.ReleaseMerge(q.mon.key)
		q.words.value.Store(v)
	}
	q.mon.leave(b)
	return free
}

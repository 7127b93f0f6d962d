package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

var (
	_ = crashpoint.Register("cond.grant.resolved")
	_ = crashpoint.Register("cond.pass.resolved")
	_ = crashpoint.Register("cond.broadcast.stamped")
	_ = crashpoint.Register("cond.broadcast.spliced")
)

// The results of the wait of a Cond, stored in its node. After a signal, the node's wanted word is the bound
// of that signal: the last stamp (number of arrival) that a wait had got before the call of Signal. If the
// signal was passed on from another wait, aux has the low bits of the stamp of that other wait.
const (
	condSignalled = iota + 1
	condBroadcast
)

// condSuccessor is set in the aux of a wait to which a signal was passed on.
const condSuccessor = 1 << 31

// condCore is a process's side of a Cond.
//
// If a waiter dies after a Signal has woken it, the Signal passes on in two steps: first the next wait is
// resolved, then the wait of the dead waiter ends. The next wait names the wait of the dead waiter. So if a
// process dies between the two steps, the replay finds that the Signal was passed on, and does not pass it on
// again. At the replay the next wait still exists, because a wait ends only under the queue lock.
type condCore struct {
	mon     *monitor
	waiting fifo
	covered fifo
	woken   fifo
	words   *condWords
	a       *arenakernel.Arena
	object  arenakernel.Object
	limit   uint64 // how many waiters of a Broadcast compete for the lock at the same time
	// reapWoken says that some of the woken waiters may be dead. The queue lock guards reapWoken.
	// It is atomic all the same, because a peer that overwrites the queue lock can let in several
	// processes.
	reapWoken atomic.Bool
	before    atomic.Uint64 // the value of landed at the last check; see condNoCheck
}

// condNoCheck is the value of before if the last check found no wait that a Broadcast still has to
// wake.
const condNoCheck = 1<<64 - 1

func buildCond(a *arenakernel.Arena, o arenakernel.Object, bare bool) *condCore {
	w := arenakernel.At[condWords](a, o.Body)
	k := &condCore{words: w, a: a, object: o, limit: w.batch.Load()}
	if k.limit == 0 {
		k.limit = condBatch
	}
	k.before.Store(condNoCheck)
	k.mon = buildMonitor(a, o, o.Body, k, bare)
	k.waiting, k.covered, k.woken = fifo{k.mon, &w.waiting}, fifo{k.mon, &w.covered}, fifo{k.mon, &w.woken}
	if !bare {
		k.mon.queueLock.alsoCheck = k.check
	}
	return k
}

// queue begins a wait: it puts a node on the waiting queue. The caller has entered the handle.
func (k *condCore) queue(ctx context.Context) (*park.WaitNode, error) {
	m := k.mon
	s, err := m.queueLock.queue.TakeNode()
	if err != nil {
		return nil, err
	}
	if err = m.enter(ctx); err != nil {
		s.Return()
		return nil, err
	}
	b := takeWakes()
	m.reapIfDue(b)
	m.join(s, 0, 0)
	m.leave(b)
	return s, nil
}

// landed ends the wait of s. The waiter has locked L again.
func (k *condCore) landed(s *park.WaitNode) error { return k.finish(s, false) }

// passOn ends the wait of s. The waiter could not lock L again, so its signal passes on to the next
// waiter.
func (k *condCore) passOn(s *park.WaitNode) error { return k.finish(s, true) }

func (k *condCore) finish(s *park.WaitNode, pass bool) error {
	m := k.mon
	q := m.queueLock.queue
	if !q.Enter() {
		return m.closed()
	}
	defer q.Exit()
	if err := m.enter(nil); err != nil {
		return err
	}
	w := wait{s.Off, s.Node}
	b := takeWakes()
	if pass {
		k.pass(b, w)
	}
	k.land(w)
	k.resolve(b)
	m.leave(b)
	m.collect(s)
	return nil
}

// takeBack ends the wait of s before the waiter has slept. If a signal has already woken s, the
// signal passes on.
func (k *condCore) takeBack(s *park.WaitNode) {
	if w := waitOf(s); s.Abandon() {
		k.mon.cleanUp(w)
		return
	}
	k.passOn(s)
}

// signal wakes the first wait whose stamp is not above bound, and reports whether there was such a
// wait. from names the wait from which the signal passes on, or is 0.
func (k *condCore) signal(b *wakes, bound uint64, from uint32) bool {
	m := k.mon
	for w, ok := k.waiting.head(); ok && w.Stamp().Load() <= bound; w, ok = k.waiting.head() {
		if !m.waiting(w) {
			k.waiting.detach(w)
			m.releaseNode(w)
			continue
		}
		storeWord(w.Wanted(), bound)
		if m.end(b, w, condSignalled, from) {
			crashpoint.Hit("cond.grant.resolved")
			k.account(w)
			return true
		}
	}
	return false
}

// broadcast moves all waits from waiting to covered, the queue of waits that a Broadcast will wake,
// and wakes the first of them.
func (k *condCore) broadcast(b *wakes) {
	if k.waiting.empty() {
		return
	}
	k.words.upTo.Store(k.mon.words.arrivals.Load())
	crashpoint.Hit("cond.broadcast.stamped")
	k.covered.take(&k.waiting)
	crashpoint.Hit("cond.broadcast.spliced")
	k.resolve(b)
}

// take moves all waits of another queue to the end of q.
func (q *fifo) take(from *fifo) {
	first, ok := from.head()
	if !ok {
		return
	}
	if last, ok := q.m.node(arenakernel.Offset(q.words.last.Load())); ok {
		storeWord(last.Next(), uint64(makeLinks(first.off, links(last.Next().Load()).prev())))
		storeWord(first.Next(), uint64(makeLinks(links(first.Next().Load()).next(), last.off)))
	} else {
		storeWord(&q.words.first, uint64(first.off))
	}
	storeWord(&q.words.last, from.words.last.Load())
	from.clear()
}

// resolve passes on the signals of dead waiters. It then wakes waiters of a Broadcast until limit
// of them compete for L.
func (k *condCore) resolve(b *wakes) {
	if k.reapWoken.CompareAndSwap(true, false) {
		k.woken.each(func(w wait) bool {
			if !k.mon.current(w.Owner()) {
				k.pass(b, w)
				k.land(w)
			}
			return true
		})
	}
	k.wakeCovered(b, k.limit)
}

// wakeCovered wakes waiters of a Broadcast until limit of them have been woken and have not locked L
// yet.
func (k *condCore) wakeCovered(b *wakes, limit uint64) {
	m := k.mon
	for k.words.flying.Load() < limit {
		w, ok := k.covered.head()
		if !ok {
			return
		}
		if !m.waiting(w) {
			k.covered.detach(w)
			m.releaseNode(w)
			continue
		}
		if m.end(b, w, condBroadcast, 0) {
			crashpoint.Hit("cond.grant.resolved")
			k.account(w)
		}
	}
}

// pass gives the signal that has ended the wait w to the next waiter, unless that was done before.
// A Broadcast needs no pass: all its waiters have been woken, or will be.
func (k *condCore) pass(b *wakes, w wait) {
	if outcome(w.Extra().Load()).result() != condSignalled {
		return
	}
	from, passed := uint32(w.Stamp().Load())|condSuccessor, false
	k.woken.each(func(successor wait) bool {
		passed = outcome(successor.Extra().Load()).aux() == from && successor.off != w.off
		return !passed
	})
	if !passed && k.signal(b, w.Wanted().Load(), from) {
		crashpoint.Hit("cond.pass.resolved")
	}
}

// land removes w from the woken queue, and frees its node.
func (k *condCore) land(w wait) {
	if outcome(w.Extra().Load()).result() == condBroadcast {
		storeWord(&k.words.flying, max(k.words.flying.Load(), 1)-1)
		storeWord(&k.words.landed, k.words.landed.Load()+1)
	}
	k.woken.detach(w)
	k.mon.releaseNode(w)
}

// account moves a wait that was resolved to the woken queue. The wait keeps its stamp.
func (k *condCore) account(w wait) {
	if outcome(w.Extra().Load()).result() == condBroadcast {
		storeWord(&k.words.flying, k.words.flying.Load()+1)
	}
	k.woken.requeue(w)
}

// queueOf returns the queue in which a wait belongs that is not over.
func (k *condCore) queueOf(w wait) *fifo {
	if w.Stamp().Load() <= k.words.upTo.Load() {
		return &k.covered
	}
	return &k.waiting
}

func (k *condCore) requeue(w wait) { k.queueOf(w).requeue(w) }
func (k *condCore) detach(w wait)  { k.queueOf(w).detach(w) }

func (k *condCore) each(f func(wait) bool) {
	k.covered.each(f)
	k.waiting.each(f)
}

// clear empties the queues. They are rebuilt after a death, and the next resolve then passes on the
// signals of dead waiters.
func (k *condCore) clear() {
	k.waiting.clear()
	k.covered.clear()
	k.woken.clear()
	storeWord(&k.words.flying, 0)
	k.reapWoken.Store(true)
}

// reap makes the next resolve check the woken waits for dead waiters.
func (k *condCore) reap(func(arenakernel.ParticipantID) bool) { k.reapWoken.Store(true) }

// holders calls f for no participant: a participant holds nothing of a Cond but its waits, and these are
// found in the queues.
func (k *condCore) holders(f func(arenakernel.ParticipantID)) {}

// check is called ten times a second while a goroutine of this process waits. If no waiter of a
// Broadcast has locked L since the last check, the woken waiters may be stopped, or another process
// may hold their lock for long. Then check wakes all waiters of the Broadcast.
func (k *condCore) check() {
	k.mon.check()
	if k.covered.empty() {
		k.before.Store(condNoCheck)
		return
	}
	landed := k.words.landed.Load()
	if k.before.Swap(landed) == landed && k.mon.tryEnter() {
		b := takeWakes()
		k.wakeCovered(b, condNoCheck)
		k.mon.leave(b)
	}
}

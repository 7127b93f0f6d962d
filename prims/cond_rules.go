package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("cond.broadcast.committed")
	_ = crashpoint.Register("cond.settle.committed")
	_ = crashpoint.Register("cond.wait.landed")
)

// condCore is a process's side of a Cond. Its queue contains the waits that nobody has woken, in the order of
// arrival. A woken wait is on no queue. Until its owner has locked the lock of the Cond again, the wake may still have
// to pass on to another wait, and the node of the woken wait says so. See docs/design/0058.
type condCore struct {
	recordQueue
	plainRecords
	words     *condWords
	opening   *opening
	limit     uint32        // how many woken waiters of a Broadcast compete for the lock at the same time
	unlocking goroutineMark // the goroutine that runs the Unlock of L, if the program has defined this Unlock
	// before is the value of words.flying, with its tag, at the last periodic check. It is 0 if that check found no
	// covered wait in the queue.
	before atomic.Uint64
}

// The kinds by which a record names other words than the queue. recordQueue itself uses the kind of the boundary.
const (
	condBoundaryWord = recordOwnKinds + iota
	condFlyingWord
)

// condSignal is set in the Extra word of a node that owes a Signal: a Signal has woken the wait of the node, and
// the owner has not locked L again. The other bits are the bound of the Signal: the number of the last change
// before the Signal, modulo condNumbers. The Signal may pass on only to a wait whose number is not larger; see
// wait.number. In a node that a Broadcast has woken, the Extra word is 0.
const (
	condSignal  = 1 << 31
	condNumbers = 1 << 31
)

// buildCond makes a handle. A bare handle, for a reaper or a tool, cannot wait.
func buildCond(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*condCore, error) {
	w, counts := condAt(a, o)
	k := &condCore{words: w, limit: condBatch}
	if batch := w.batch.Load(); batch != 0 {
		k.limit = uint32(min(batch, condAll))
	}
	k.init(a, o, recordQueueWords{&w.commit, &w.first, &w.last, &w.spin, &w.pays, &w.lastCPU, counts}, k)
	k.boundary = &w.boundary
	ok, err := k.openRecords(a, o, !bare)
	if err != nil || bare {
		return k, err
	}
	if !ok {
		return nil, k.corrupt("its list of slot records")
	}
	k.opening = newOpening(a, o)
	k.queue = park.NewQueue(park.Config{
		WaitList: park.WaitList{Arena: a, Word: &w.wake, Raw: wordPtr(&w.wake), Poller: &w.poller},
		Object:   o, Word: o.Body + condWakeOff, All: true, Check: k.check, Torn: k.torn,
	})
	k.opening.waitsIn(k.queue)
	k.opening.end, k.opening.inside = k.queue.Close, markedFunc{&k.unlocking, "the Unlock of the lock"}
	return k, nil
}

// wordAt returns the word of k that the given kind stands for in a record. The recordQueue calls wordAt.
func (k *condCore) wordAt(kind uint8, _ uint32) *atomic.Uint64 {
	switch kind {
	case condBoundaryWord:
		return &k.words.boundary
	case condFlyingWord:
		return &k.words.flying
	}
	return nil
}

func (k *condCore) corrupt(detail string) error {
	return failed(k.a, k.object, "cond.change", shmsync.ErrCorrupt, nil, detail)
}

// removed implements recordedObject. It has nothing to do, because detach has moved the boundary already.
func (k *condCore) removed(*recordedChange) {}

// number returns the number of a queued wait: the version of the record that put it into the queue.
func (w wait) number() uint64 { return w.Wanted().Load() }

// condBound computes the bound of a Signal from the Extra word of a node that owes the Signal. The parameter now is
// the present version of the commit word. If more than condNumbers changes have passed since the Signal, the result
// is too large, but it is never too small.
func condBound(extra uint32, now uint64) uint64 {
	return now - (now-uint64(extra))%condNumbers
}

// uncovered returns the first queued wait that a Signal may wake. The waits before it are covered: a Broadcast is
// about to wake them. ok is false if there is no such wait. If a peer has damaged the queue, uncovered sets x.torn.
func (k *condCore) uncovered(x *recordedChange) (w wait, ok bool) {
	v := x.get(k.boundary)
	if v == 0 {
		return wait{}, false
	}
	return k.waitAt(x, v)
}

// enqueue puts a new wait at the end of the queue.
func (k *condCore) enqueue() (*park.WaitNode, error) {
	s, err := k.queue.TakeNode()
	if err != nil {
		return nil, err
	}
	k.prepare(s, 0)
	b := takeWakes()
	defer k.wake(b) // deferred before the Unlock, so it runs after the Unlock
	k.private.Lock()
	defer k.private.Unlock()
	x := &k.scratch
	for {
		// Another iteration means that another call has changed the Cond, so the loop is lock-free.
		if err := k.begin(x, b); err != nil {
			k.unused(s)
			return nil, err
		}
		s.Node.Wanted().Store(x.c.version() + 1)
		k.join(x, s)
		switch ok, err := k.end(x, b); {
		case err != nil:
			k.unused(s)
			return nil, err
		case ok:
			return s, nil
		}
	}
}

// signal wakes the first wait that is not covered by a Broadcast, if there is one.
func (k *condCore) signal() error {
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x := &k.scratch
	k.reapIfDue(x, b)
	for {
		// Another iteration follows a change by another call, or the removal of the wait of a dead participant.
		if err := k.begin(x, b); err != nil {
			return err
		}
		w, ok := k.uncovered(x)
		over := !ok
		switch {
		case !ok:
		case !k.waiting(w):
			k.detach(x, w, arenakernel.RecordedRemoved)
		default:
			k.give(x, w, condSignal|uint32(x.c.version()%condNumbers))
			over = true
		}
		if ok, err := k.end(x, b); err != nil || ok && over {
			return err
		}
	}
}

// give makes the change x wake the wait w by a Signal. The parameter extra is the new Extra word of the node; see
// condSignal.
func (k *condCore) give(x *recordedChange, w wait, extra uint32) {
	k.detach(x, w, arenakernel.RecordedOwes)
	x.set(recordPrev, w.index(), w.Extra(), extra)
}

// broadcast covers all queued waits, that is, it marks them as woken by a Broadcast. It wakes the first ones.
func (k *condCore) broadcast() error {
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x := &k.scratch
	k.reapIfDue(x, b)
	for {
		// Another iteration means that another call has changed the Cond, so the loop is lock-free.
		if err := k.begin(x, b); err != nil {
			return err
		}
		covers := x.get(k.boundary) != 0
		if covers {
			x.set(condBoundaryWord, 0, k.boundary, 0)
			k.turns(x, k.limit)
		}
		switch ok, err := k.end(x, b); {
		case err != nil:
			return err
		case ok && !covers:
			return nil
		case ok:
			crashpoint.Hit("cond.broadcast.committed")
			return k.serve(x, b, k.limit)
		}
	}
}

// turns makes the change x wake the first waits of the queue, as long as a Broadcast has covered these waits. turns
// stops when the record is full, when limit waiters compete for L, or at a wait whose owner is dead.
func (k *condCore) turns(x *recordedChange, limit uint32) {
	for {
		y := *x
		flying := y.get(&k.words.flying)
		w, ok := k.head(&y)
		if !ok || flying >= limit || w.index() == y.get(k.boundary) || !k.waiting(w) {
			x.torn = y.torn
			return
		}
		k.detach(&y, w, arenakernel.RecordedOwes)
		y.set(condFlyingWord, 0, &k.words.flying, flying+1)
		if y.torn || y.tooMany {
			x.torn = y.torn
			return
		}
		*x = y
	}
}

// serve wakes waiters of a Broadcast until the number of those that compete for L is limit. If other processes change
// the Cond all the time, serve leaves the rest to the periodic checks of the waiters. The caller holds k.private.
func (k *condCore) serve(x *recordedChange, b *wakes, limit uint32) error {
	for until := k.until(); k.overtaken < until; {
		// Another iteration follows a change by another call, or the removal of a wait from the queue.
		if err := k.begin(x, b); err != nil {
			return err
		}
		if w, ok := k.head(x); ok && w.index() != x.get(k.boundary) && !k.waiting(w) {
			k.detach(x, w, arenakernel.RecordedRemoved)
		} else {
			k.turns(x, limit)
		}
		over := x.n == 0
		if ok, err := k.end(x, b); err != nil || ok && over {
			return err
		}
	}
	return nil
}

// settle ends the wait of a node that owes a wake: the owner was woken and has not locked L again. A Signal passes
// on to the next wait, if that wait was queued when the Signal was given. After a Broadcast, the next covered waits
// are woken.
//
// The parameter outcome is the new value of the Next word of the node: RecordedLeft if this process is the owner,
// or RecordedRemoved if the owner is dead. ok is false if the node does not owe a wake, or if the owner is dead and
// other processes change the Cond all the time. The caller holds k.private.
func (k *condCore) settle(x *recordedChange, b *wakes, w wait, outcome uint32) (ok bool, err error) {
	for until := k.until(); outcome == arenakernel.RecordedLeft || k.overtaken < until; {
		// Another iteration follows a change by another call, or the removal of the wait of a dead participant.
		if err := k.begin(x, b); err != nil {
			return false, err
		}
		next, done := recordedWord(w.Next().Load()), false
		owes := next.value() == arenakernel.RecordedOwes && (outcome == arenakernel.RecordedLeft || k.ofDead(w.Node))
		extra := valueIn(w.Extra())
		// If the Next word of the node has changed since it was read, the owner is alive: it has ended this wait,
		// and may use the node for another object.
		owes = owes && recordedWord(w.Next().Load()) == next
		switch {
		case !owes:
			done = true
		case extra&condSignal == 0:
			x.add(recordNext, w.index(), w.Next(), next, outcome)
			// The word k.words.flying gets a new tag, even if the method turns sets it to its old value again. The
			// periodic check compares the tag, too.
			x.set(condFlyingWord, 0, &k.words.flying, max(x.get(&k.words.flying), 1)-1)
			k.turns(x, k.limit)
			x.torn = false // commit all the same: damage of the queue concerns only the waits that are still in it
			done = true
		default:
			to, has := k.uncovered(x)
			has = has && to.number() <= condBound(extra&^condSignal, x.c.version())
			if has && !k.waiting(to) {
				k.detach(x, to, arenakernel.RecordedRemoved)
				break
			}
			x.add(recordNext, w.index(), w.Next(), next, outcome)
			if has {
				k.give(x, to, extra)
			}
			done = true
		}
		if x.torn {
			// A peer has overwritten the first wait that a Signal may wake, so no process can wake any wait.
			// Therefore this change only ends the wait of this node.
			x.n, x.torn, done = 0, false, true
			x.add(recordNext, w.index(), w.Next(), next, outcome)
		}
		if ok, err := k.end(x, b); err != nil || ok && done {
			if ok && owes {
				crashpoint.Hit("cond.settle.committed")
				err = k.serve(x, b, k.limit)
			}
			return ok && owes, err
		}
	}
	return false, nil
}

// landed ends the wait of s, whose owner has locked L again.
func (k *condCore) landed(s *park.WaitNode) error { return k.finish(s, false) }

// passOn ends the wait of s, whose owner could not lock L again. A Signal passes on to the next waiter.
func (k *condCore) passOn(s *park.WaitNode) error { return k.finish(s, true) }

func (k *condCore) finish(s *park.WaitNode, pass bool) error {
	if !k.queue.EnterStay() {
		return k.closed() // this process has left the arena, so a reaper settles the wait
	}
	defer k.queue.ExitLasting()
	n := s.Node
	if valueIn(n.Extra())&condSignal != 0 && !pass {
		// This process owns the node, so no other process changes the Next word. The CAS fails only if a peer has
		// damaged the node.
		w := recordedWord(n.Next().Load())
		if w.value() != arenakernel.RecordedOwes || !n.Next().CompareAndSwap(uint64(w), uint64(w.with(arenakernel.RecordedLeft))) {
			s.Forget()
			return k.corrupt("a wait node, which ended a wait that was not woken")
		}
		crashpoint.Hit("cond.wait.landed")
	} else if err := k.settleOwn(s); err != nil {
		return err
	}
	k.handBack(s)
	return nil
}

// settleOwn calls settle for the wait of s, which belongs to this process. If a peer has overwritten the node or
// the queue, settleOwn gives the node up.
func (k *condCore) settleOwn(s *park.WaitNode) error {
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x := &k.scratch
	ok, err := k.settle(x, b, wait{s.Off, s.Node}, arenakernel.RecordedLeft)
	if ok {
		return nil // the wait of s has ended, so an error concerns only the waits of others
	}
	s.Forget()
	if err == nil {
		err = k.corrupt("a wait node, which ended a wait that was not woken")
	}
	return err
}

// sleepIn waits until the wait of s is woken. If sleepIn returns an error, or covered is true, the caller must not
// use s any more. covered is true if ctx has ended the wait, but a Broadcast came before.
func (k *condCore) sleepIn(ctx context.Context, s *park.WaitNode) (covered bool, _ error) {
	r, err := k.await(ctx, s, true, (*condWaits)(k))
	if r == park.Again {
		crashpoint.Hit("record.await.resolved")
		race.Acquire(k.key)
		k.counts.took()
		return false, nil
	}
	crashpoint.Hit("record.await.withdrawn")
	covered = k.withdrawn(s)
	switch r {
	case park.Closed:
		return false, k.closed()
	case park.Torn:
		return false, failed(k.a, k.object, "cond.wait", shmsync.ErrCorrupt, nil, tornQueue)
	}
	return covered, err
}

// takeBack ends the wait of s before its owner has slept. If a Signal has woken the wait already, the Signal passes
// on to the next waiter.
func (k *condCore) takeBack(s *park.WaitNode) {
	if k.withdraw(s) {
		k.withdrawn(s)
		return
	}
	k.passOn(s)
}

// withdrawn puts a node back into its pool after its wait was withdrawn, and reports whether a Broadcast had
// covered the wait.
func (k *condCore) withdrawn(s *park.WaitNode) (covered bool) {
	if s.Found == condForgotten {
		s.Forget()
		return false
	}
	covered = s.Found == condCovered
	k.unused(s)
	return covered
}

// The results of the method withdraw, which stores one of them in the field Found of the wait node.
const (
	condLeft      = iota // the wait was not covered
	condCovered          // a Broadcast had covered the wait
	condForgotten        // a peer has overwritten the queue, which may still name the node
)

// condWaits implements the interface that [park.WaitNode] needs of a Cond.
type condWaits condCore

// Withdraw calls the method withdraw of the Cond.
func (k *condWaits) Withdraw(s *park.WaitNode) bool { return (*condCore)(k).withdraw(s) }

// withdraw takes a wait of this process off the queue, and stores in s.Found what it has found. The caller then
// puts the node back into its pool. withdraw reports false if the wait was already woken.
func (k *condCore) withdraw(s *park.WaitNode) bool {
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x, w := &k.scratch, wait{s.Off, s.Node}
	for {
		// Another iteration means that another call has changed the Cond, so the loop is lock-free.
		err := k.begin(x, b)
		v := x.get(w.Next())
		switch {
		case err != nil:
		case v == arenakernel.RecordedOwes && s.Resolved():
			return false
		case queuedValue(v):
			s.Found = condLeft
			if first, ok := k.uncovered(x); !ok || w.number() < first.number() {
				s.Found = condCovered
			}
			k.detach(x, w, arenakernel.RecordedLeft)
			var ok bool
			switch ok, err = k.end(x, b); {
			case ok:
				return true
			case err == nil:
				continue
			}
		case k.load() != x.c:
			continue // the record that wakes the wait may be incomplete
		}
		s.Found = condForgotten // a peer has overwritten the node, or the queue
		return true
	}
}

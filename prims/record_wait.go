package prims

import (
	"context"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("record.wait.prepared")
	_ = crashpoint.Register("record.tell.resolved")
	_ = crashpoint.Register("record.wake.before")
	_ = crashpoint.Register("record.await.resolved")
	_ = crashpoint.Register("record.await.withdrawn")
	_ = crashpoint.Register("record.reap.visited")
)

// queuedValue reports whether the node of a wait is on its queue. v is the value of the word next of that node.
func queuedValue(v uint32) bool {
	return v == arenakernel.RecordedLast || v >= arenakernel.RecordedFirst
}

// waitAt returns the queued wait whose node is at v, an offset divided by 64. If there is no such wait, the words that
// x has read do not belong to one state. Then ok is false, and waitAt sets x.torn.
func (q *recordQueue) waitAt(x *recordedChange, v uint32) (w wait, ok bool) {
	off := arenakernel.Offset(v) * linkUnit
	n, err := q.a.NodeAt(off)
	if err != nil || n.Object() != q.object.Offset || !queuedValue(x.get(n.Next())) {
		x.torn = true
		return wait{}, false
	}
	return wait{off, n}, true
}

// head returns the first wait of the queue. ok is false if the queue is empty or if the words that x has read are
// not of one state; then x.torn is set.
func (q *recordQueue) head(x *recordedChange) (w wait, ok bool) {
	v := x.get(q.first)
	if v == 0 {
		return wait{}, false
	}
	return q.waitAt(x, v)
}

// empty reports whether no wait is queued after the change x.
func (q *recordQueue) empty(x *recordedChange) bool { return x.get(q.first) == 0 }

func (w wait) index() uint32 { return uint32(w.off / linkUnit) }

// prepare makes a wait node ready to be queued. The node is on no queue, so only its owner changes its words. The words
// next and extra get new tags, so that a process that was stopped while it carried out a record of an earlier wait of
// the node cannot change them.
func (q *recordQueue) prepare(s *park.WaitNode, wanted uint64) {
	n := s.Node
	s.NextTag++
	s.ExtraTag++
	s.Withdrawer = nil
	n.SetObject(q.object.Offset)
	n.Wanted().Store(wanted)
	n.SetParkedSince(0)
	// Store both links before the state word says that the node is queued; see the table of tell.
	n.Next().Store(uint64(makeRecorded(0, s.NextTag)))
	n.Extra().Store(uint64(makeRecorded(0, s.ExtraTag)))
	n.Swap(n.Load(), n.Load().With(arenakernel.NodeQueued))
}

// join adds to the change x that a wait is put at the end of the queue. s is its prepared node.
func (q *recordQueue) join(x *recordedChange, s *park.WaitNode) {
	n, me := s.Node, uint32(s.Off/linkUnit)
	n.Stamp().Store(arenakernel.RecordedStamp | (x.c.version()+1)&(1<<31-1)<<32)
	crashpoint.Hit("record.wait.prepared")
	last := x.get(q.last)
	n.Extra().Store(uint64(makeRecorded(last, s.ExtraTag)))
	if last == 0 {
		x.torn = x.torn || x.get(q.first) != 0
		x.set(recordFirst, q.at, q.first, me)
	} else if w, ok := q.waitAt(x, last); ok {
		x.torn = x.torn || x.get(w.Next()) != arenakernel.RecordedLast
		x.set(recordNext, last, w.Next(), me)
	}
	x.set(recordNext, me, n.Next(), arenakernel.RecordedLast)
	x.set(recordLast, q.at, q.last, me)
	if q.boundary != nil && x.get(q.boundary) == 0 {
		x.set(recordOwnKinds, 0, q.boundary, me)
	}
}

// detach adds to the change x that a wait leaves the queue. outcome, the way in which the wait ended, is the new
// value of the word next of its node.
func (q *recordQueue) detach(x *recordedChange, w wait, outcome uint32) {
	next, prev := x.get(w.Next()), x.get(w.Extra())
	if next == arenakernel.RecordedLast {
		x.torn = x.torn || x.get(q.last) != w.index()
		x.set(recordLast, q.at, q.last, prev)
	} else if n, ok := q.waitAt(x, next); ok {
		x.torn = x.torn || x.get(n.Extra()) != w.index()
		x.set(recordPrev, next, n.Extra(), prev)
	}
	if prev == 0 {
		x.torn = x.torn || x.get(q.first) != w.index()
		x.set(recordFirst, q.at, q.first, firstAfter(next))
	} else if p, ok := q.waitAt(x, prev); ok {
		x.torn = x.torn || x.get(p.Next()) != w.index()
		x.set(recordNext, prev, p.Next(), next)
	}
	x.set(recordNext, w.index(), w.Next(), outcome)
	if q.boundary != nil && x.get(q.boundary) == w.index() {
		x.set(recordOwnKinds, 0, q.boundary, firstAfter(next))
	}
}

// firstAfter converts a value of the word next of a node into a value of recordQueue.first or boundary, where 0 says
// that no node follows.
func firstAfter(next uint32) uint32 {
	if next == arenakernel.RecordedLast {
		return 0
	}
	return next
}

// tell ends a wait that a record has taken off the queue because the wait was granted, refused or removed. The node of
// the wait is at the offset off. The parameter next is the value that the record gave to the word next of the node.
// Every process that completes the record calls tell, and the CAS of the state word of the node decides which process
// resolves the wait.
//
//	a process that calls tell                     the owner of the node, before its next wait
//	loads the state word of the node              stores the word next with another tag
//	checks that the word next has not changed     stores the state queued, with the next generation
//	changes the state word to resolved, by a CAS
//
// So if a process finds the word next unchanged, the state word that it has loaded is from this wait. If the wait is
// over before the CAS, the CAS fails.
func (q *recordQueue) tell(b *wakes, off arenakernel.Offset, next recordedWord) {
	ended := arenakernel.RecordedEnds(next.value())
	if !ended && next.value() != arenakernel.RecordedRemoved {
		return
	}
	n, err := q.a.NodeAt(off)
	if err != nil {
		return
	}
	if !ended {
		if owner := n.Owner(); !q.a.Current(owner) {
			q.a.ReapRemoved(off, owner, uint64(next))
		}
		return
	}
	telling := false
	for {
		// The loop ends because the owner changes the state word at most three times.
		w, owner := n.Load(), n.Owner()
		if !queued(w) || recordedWord(n.Next().Load()) != next {
			break
		}
		if !telling && w.State() == arenakernel.NodeParked {
			q.a.BeginTell() // wakeOne ends what BeginTell begins
			telling = true
		}
		if w.State() == arenakernel.NodeQueued && owner != q.a.Self() {
			q.tuning.NoteCPU() // the owner spins; if the owner sleeps, wake calls NoteCPU
		}
		// sync(waitnode.resolve): release
		if n.Swap(w, w.With(arenakernel.NodeResolved)) {
			crashpoint.Hit("record.tell.resolved")
			if b.add(wait{off, n}, w.State(), owner); w.State() == arenakernel.NodeParked {
				telling = false // wakeOne calls EndTell
			}
			break
		}
	}
	if telling {
		q.a.EndTell()
	}
}

// wake wakes the owners of the resolved waits in b. The caller does not hold q.private.
func (q *recordQueue) wake(b *wakes) {
	if b.n > 0 {
		crashpoint.Hit("record.wake.before")
		q.tuning.NoteCPU()
		for _, u := range b.few[:b.n] {
			q.wakeOne(u)
		}
		for _, u := range b.more {
			q.wakeOne(u)
		}
		b.n, b.more = 0, b.more[:0]
	}
	wakesPool.Put(b)
}

func (q *recordQueue) wakeOne(u wakeUp) {
	q.counts.add(countWake)
	if u.state != arenakernel.NodeParked {
		shmsync.Wake(wordPtr(u.Word()), 1)
		return
	}
	if q.queue != nil && u.owner == q.a.Self() {
		q.queue.TellOwn(u.off)
	} else {
		q.a.Tell(u.off, u.Node, u.owner)
	}
	q.a.EndTell()
}

// await waits until the queued wait of node s has ended. If spin is true, await spins before it sleeps. The result says
// how the wait ended. The error is that of ctx, if ctx has ended.
func (q *recordQueue) await(ctx context.Context, s *park.WaitNode, spin bool, by withdrawer) (park.Result, error) {
	s.Withdrawer = by
	if spin && q.queue.Seated() == 0 && q.tuning.Spin(s.Resolved) {
		q.counts.add(countSpin)
		return park.Again, nil
	}
	q.counts.add(countSleep)
	c := park.CancelBy(ctx)
	r := s.Sleep(q.queue, &c)
	c.Stop()
	return r, c.Err()
}

type withdrawer interface{ Withdraw(s *park.WaitNode) bool }

// collect puts the wait node of a resolved wait back into its pool. It reports false if the wait was not granted.
// In that case a peer has overwritten the node, and collect does not put it back.
func (q *recordQueue) collect(s *park.WaitNode) (granted bool) {
	crashpoint.Hit("record.await.resolved")
	if valueIn(s.Node.Next()) != arenakernel.RecordedGranted {
		return false
	}
	q.counts.took()
	q.handBack(s)
	return true
}

// handBack puts a wait node back into its pool, after a record has resolved its wait.
func (q *recordQueue) handBack(s *park.WaitNode) {
	race.Acquire(q.key)
	noteTags(s)
	s.Node.Stamp().Store(0)
	s.Leave()
}

// unused puts a wait node back into its pool. The node is on no queue, and its wait was not granted.
func (q *recordQueue) unused(s *park.WaitNode) {
	noteTags(s)
	s.Node.Stamp().Store(0)
	s.Withdrawn()
}

// noteTags stores in s the last tags that the links of its node have had. The node is on no queue. Each link has a tag
// of its own, because the links change at different times. For example, the link next of the last wait changes whenever
// another wait joins the queue behind it.
func noteTags(s *park.WaitNode) {
	s.NextTag, s.ExtraTag = recordedWord(s.Node.Next().Load()).tag(), recordedWord(s.Node.Extra().Load()).tag()
}

// removeDead removes the waits of dead participants from the queue. It walks from node to node. Meanwhile, waits may
// leave at any place, and an owner may queue its node again at another place. So at each node, the walk checks that the
// node before still has the same link. If the link has changed, or the node is not on this queue, the walk begins again
// at the first wait, at most removeDeadAgain times.
//
// A peer may have made the queue a circle. So the walk remembers one of the visited nodes, the anchor, and ends when it
// meets the anchor again. A walk that ends early sets q.unreaped, so that the next reap tries again.
//
// In a Waitable, a wait may join the queue at any place. So the walk may meet the anchor without a circle, because the
// owner has queued that node again. The walk may also miss a wait that joins at a place that the walk has passed. If
// the owner of the missed wait dies, the reap of this death removes the wait.
//
// If a peer has overwritten the links of a wait, removeDead leaves that wait where it is, and goes on behind it. It
// then returns an error.
func (q *recordQueue) removeDead(x *recordedChange, b *wakes) error {
	if err := q.begin(x, b); err != nil { // the last change of the dead participant may be a join
		return err
	}
	var damaged error
	again, anchor, lap := 0, uint32(0), 64
	var before *arenakernel.Node // the node in front of v, or nil if v was the first
	var link recordedWord        // the word next of that node
	v := valueIn(q.first)
	for steps := 0; v >= arenakernel.RecordedFirst && v != anchor && again < removeDeadAgain && steps < 1<<24; steps++ {
		if steps == lap {
			anchor, lap = v, 2*lap
		}
		n, next, ok := q.queuedAt(v)
		if !ok && damaged != nil {
			return damaged
		}
		if !ok || before == nil && valueIn(q.first) != v || before != nil && recordedWord(before.Next().Load()) != link {
			again++
			v, before, anchor = valueIn(q.first), nil, 0
			continue
		}
		if q.current(n.Owner()) {
			v, before, link = next.value(), n, next
			continue
		}
		if err := q.begin(x, b); err != nil {
			return err
		}
		if q.several && !q.hasChosen() {
			q.unreaped.Store(true) // x now describes another queue of the object; the next reap tries again
			return nil
		}
		// Until the commit word changes, a node that is on this queue now stays on it.
		if n, next, ok = q.queuedAt(v); ok && !q.current(n.Owner()) {
			q.detach(x, wait{arenakernel.Offset(v) * linkUnit, n}, arenakernel.RecordedRemoved)
			q.of.removed(x)
			switch ok, err := q.end(x, b); {
			case err != nil:
				damaged = err
				v, before, link = next.value(), n, next
				continue
			case ok && before == nil:
				v, anchor = valueIn(q.first), 0
				continue
			case ok:
				v, link = next.value(), link.with(next.value()) // the link after the removal
				continue
			}
		}
		again, anchor = again+1, 0 // other processes change the queue
	}
	if again >= removeDeadAgain || v >= arenakernel.RecordedFirst && v == anchor {
		q.unreaped.Store(true) // the next reap tries again
	}
	return damaged
}

// queuedAt returns the node at v, an offset divided by 64, and the value of its word next, if the node is on this
// queue. The commit word may change meanwhile, and the owner may use the node for a wait in another queue or object.
// The owner stores the object and the word wanted before it changes the word next. So if the word next has the same tag
// before and after the reads, all values that queuedAt has read belong to one wait.
func (q *recordQueue) queuedAt(v uint32) (n *arenakernel.Node, next recordedWord, ok bool) {
	n, err := q.a.NodeAt(arenakernel.Offset(v) * linkUnit)
	if err != nil {
		return nil, 0, false
	}
	crashpoint.Hit("record.reap.visited")
	next = recordedWord(n.Next().Load())
	ok = queuedValue(next.value()) && n.Object() == q.object.Offset && (!q.several || n.Wanted().Load() == q.chosen)
	crashpoint.Hit("record.reap.visited")
	return n, next, ok && recordedWord(n.Next().Load()) == next
}

// removeDeadAgain is how often removeDead begins its walk again at most.
const removeDeadAgain = 64

// wakeFirstMost is how many waiters are woken after a death, so that they reap. One waiter is enough, unless
// its process is stopped. wakeFirstSteps is how many waits are examined at most, because waits of dead participants may
// be in front of these waiters.
const (
	wakeFirstMost  = 4
	wakeFirstSteps = 1 << 12
)

// wakeFirst wakes the owners of the first waits, so that they reap. Their waits do not end. A wait may leave the queue
// before wakeFirst wakes its owner. So wakeFirst begins again if it has woken nobody and the queue has changed.
func (q *recordQueue) wakeFirst() {
	for range reapTries {
		first := q.first.Load()
		if q.wakeFrom(recordedWord(first).value()) || q.first.Load() == first {
			return
		}
	}
}

// wakeFrom wakes the owners of the waits from the node at v on, and reports whether it has woken one. It passes over
// the waits of dead participants.
func (q *recordQueue) wakeFrom(v uint32) (woken bool) {
	for n, steps := 0, 0; n < wakeFirstMost && steps < wakeFirstSteps && v >= arenakernel.RecordedFirst; steps++ {
		w, err := q.a.NodeAt(arenakernel.Offset(v) * linkUnit)
		if err != nil || w.Object() != q.object.Offset {
			break
		}
		if q.current(w.Owner()) {
			n++
			if w.State() == arenakernel.NodeAsleep && shmsync.Wake(wordPtr(w.Word()), 1) > 0 {
				woken = true
			}
		}
		v = valueIn(w.Next())
	}
	return woken
}

// dateFirst stores the present time in the low half of the word stamp of the first wait of the queue, where tools read
// it. dateFirst is called only for a queue in the order of arrival, in which the first wait stays first until it ends.
// See wait_date.go.
func (q *recordQueue) dateFirst() {
	v := valueIn(q.first)
	if v < arenakernel.RecordedFirst {
		return
	}
	n, err := q.a.NodeAt(arenakernel.Offset(v) * linkUnit)
	if err != nil || n.Object() != q.object.Offset || !queuedValue(valueIn(n.Next())) {
		return
	}
	// If the owner has used the node for another wait meanwhile, the stamp has changed, and the CAS fails. If both
	// waits happen to have the same stamp, a tool shows a time that is too early.
	if stamp := n.Stamp().Load(); stamp&arenakernel.RecordedStamp != 0 && uint32(stamp) == 0 && valueIn(q.first) == v {
		n.Stamp().CompareAndSwap(stamp, stamp|uint64(firstDate(shmsync.Monotonic())))
	}
}

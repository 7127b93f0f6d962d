package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// absent reports whether n is a participant that is dead or has left the arena.
func (q *recordQueue) absent(n arenakernel.ParticipantID) bool { return n != 0 && !q.current(n) }

// waiting reports whether the owner of a queued wait is alive. It also asks Dead, and does not rely on reaping:
// whatever is granted to a dead participant is unavailable until that participant is reaped.
func (q *recordQueue) waiting(w wait) bool {
	owner := w.Owner()
	return q.current(owner) && !q.a.Dead(owner)
}

// reapDue reports whether there is something to reap: a participant has died since the last reap, or the
// process of a dead participant had not ended at the last reap.
func (q *recordQueue) reapDue() bool { return q.deaths.Load() != q.a.Deaths() || q.unreaped.Load() }

// beginReap removes the waits of dead participants from the queue, so that nothing is granted to them any more.
// The caller holds private.
func (q *recordQueue) beginReap(x *recordedChange, b *wakes) error {
	q.deaths.Store(q.a.Deaths())
	q.unreaped.Store(false)
	return q.removeDead(x, b)
}

// reconsider makes the next call reap if the participant granted has died. Its wait was just granted, and the
// last reap may have examined this participant before the grant.
func (q *recordQueue) reconsider(granted arenakernel.ParticipantID) {
	if q.absent(granted) {
		q.deaths.Store(q.a.Deaths() - 1)
	}
}

// hasRecord reports whether the slot of this participant has a record. A participant that has not opened the
// object has no record, and cannot make a change.
func (q *recordQueue) hasRecord() bool {
	_, ok := q.of.recordAt(q.slot)
	return ok
}

// repairBare reaps for a bare handle, which reapers use and which cannot wait. If this participant has a
// record, repairBare calls reap. Otherwise it can only complete the last change, and calls stranger. The
// waiters or the next call then do the rest.
func (q *recordQueue) repairBare(dead arenakernel.ParticipantID, reap func(x *recordedChange, b *wakes), stranger func(x *recordedChange, b *wakes)) {
	if dead == q.a.Self() { // this participant leaves; any other dead participant is no longer current
		q.without = dead
	}
	b := takeWakes()
	defer q.wake(b)
	q.private.Lock()
	defer q.private.Unlock()
	if q.hasRecord() {
		reap(&q.scratch, b)
		return
	}
	q.complete(q.load(), b)
	stranger(&q.scratch, b)
}

// wakeBare wakes the owners of the first waits if this process has no record, so that one of the owners reaps.
// A Go process also learns of a death from its poller. But a thread of a C program sleeps on the word of its
// wait node only.
func (q *recordQueue) wakeBare() {
	if !q.hasRecord() {
		q.wakeFirst()
	}
}

// completeBare completes the last change, for a bare handle.
func (q *recordQueue) completeBare() bool {
	b := takeWakes()
	defer q.wake(b)
	return q.complete(q.load(), b) == nil
}

package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// absent reports whether a participant is dead, or has left.
func (q *recordQueue) absent(n arenakernel.ParticipantID) bool { return n != 0 && !q.current(n) }

// waiting reports whether the owner of a queued wait is alive. It checks the marks of death itself: what a
// dead participant was granted comes back only when that participant is reaped.
func (q *recordQueue) waiting(w wait) bool {
	owner := w.Owner()
	return q.current(owner) && !q.a.Dead(owner)
}

// reapDue reports whether a participant has died since the last reap, or was not gone at that
// reap.
func (q *recordQueue) reapDue() bool { return q.deaths.Load() != q.a.Deaths() || q.unreaped.Load() }

// beginReap takes the waits of the dead off the queue, so that nothing is granted to them any more. private
// is held.
func (q *recordQueue) beginReap(x *recordedChange, b *wakes) error {
	q.deaths.Store(q.a.Deaths())
	q.unreaped.Store(false)
	return q.removeDead(x, b)
}

// reconsider makes the next call reap if a participant whose wait was granted has died meanwhile: the last
// reap may have looked at what it has before.
func (q *recordQueue) reconsider(granted arenakernel.ParticipantID) {
	if q.absent(granted) {
		q.deaths.Store(q.a.Deaths() - 1)
	}
}

// hasRecord reports whether the slot of this participant has a record. One that has not opened the object
// has none, and cannot make a change.
func (q *recordQueue) hasRecord() bool {
	_, ok := q.of.recordAt(q.slot)
	return ok
}

// repairBare reaps for a handle that is bare, by reap. Without a record it completes the last change, and
// calls stranger: those that wait, and the next call, do the rest.
func (q *recordQueue) repairBare(dead arenakernel.ParticipantID, reap func(x *recordedChange, b *wakes), stranger func()) {
	if dead == q.a.Self() { // other dead participants are not current, or have passed their ID to another participant by now
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
	stranger()
}

// wakeBare wakes the owners of the first waits if this process has no record, so that one of them reaps.
// Processes in Go are told of a death by their pollers, too, but threads in C sleep on the words of their wait
// nodes only.
func (q *recordQueue) wakeBare() {
	if !q.hasRecord() {
		q.wakeFirst()
	}
}

// completeBare completes the last change, for a handle that is bare.
func (q *recordQueue) completeBare() bool {
	b := takeWakes()
	defer q.wake(b)
	return q.complete(q.load(), b) == nil
}

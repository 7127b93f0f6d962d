package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// absent reports whether n is a participant that is dead or has left the arena.
func (q *recordQueue) absent(n arenakernel.ParticipantID) bool { return n != 0 && !q.current(n) }

// waiting reports whether the participant that owns a queued wait is alive and still waits. It also asks the method
// Dead of the arena, because a participant may be dead and not reaped yet. A lock that is granted to such a
// participant would be unavailable until the reap. A participant that has found the object damaged may have given up
// its wait; the node is then in the state NodeLeft.
func (q *recordQueue) waiting(w wait) bool {
	owner := w.Owner()
	return q.current(owner) && !q.a.Dead(owner) && w.State() != arenakernel.NodeLeft
}

// reapDue reports whether there is something to reap: a participant has died since the last reap, or the last reap has
// left something; see the field unreaped.
func (q *recordQueue) reapDue() bool { return q.deaths.Load() != q.a.Deaths() || q.unreaped.Load() }

// overtakenMost is how many changes of a reap, or of the service of a queue, other processes may overtake. Then the
// reap or the service leaves the rest to a later check. Correct peers overtake a few of the changes. A hostile peer may
// overtake all.
const overtakenMost = 4096

// until returns the limit for a loop of a reaper: the loop ends when the field overtaken has this value. Such a loop
// repeats if another process makes a change first. A reap of many things, such as keys or shares, has such a loop for
// each of them, and each loop has a limit of its own. The caller holds q.private.
func (q *recordQueue) until() uint64 { return q.overtaken + overtakenMost }

// beginReap is the first step of a reap. It removes the waits of dead participants from the queue, so that nothing
// is granted to them any more. The caller holds q.private.
func (q *recordQueue) beginReap(x *recordedChange, b *wakes) error {
	q.deaths.Store(q.a.Deaths())
	q.unreaped.Store(false)
	return q.removeDead(x, b)
}

// reconsider makes the next call reap if the participant whose wait was just granted has died. The last reap may have
// examined that participant before the grant.
func (q *recordQueue) reconsider(granted arenakernel.ParticipantID) {
	if q.absent(granted) {
		q.deaths.Store(q.a.Deaths() - 1)
	}
}

// hasRecord reports whether this participant has memory for its records on this object. A participant that has not
// opened the object has none, and cannot make a change.
func (q *recordQueue) hasRecord() bool {
	_, ok := q.of.recordAt(q.slot)
	return ok
}

// bareRepair is what repairBare needs of an object.
type bareRepair struct {
	// reap recovers what all dead participants have left.
	reap func(x *recordedChange, b *wakes)
	// owes reports whether a dead participant has left something that only a record can recover. It may recover other
	// things without a record.
	owes func(x *recordedChange, b *wakes) bool
	// makeRecord makes a record for this participant, and reports whether there is room for it.
	makeRecord func() bool
}

// repairBare recovers what a dead participant left. It runs on a bare handle, that is, the handle of a reaper, which
// cannot wait. A participant that has no record, because it has not opened the object, cannot make changes. It
// completes the last change, and makes a record for itself if a dead participant has left something that only a record
// can recover. If the arena has no room for the record, repairBare returns false, and the waiters or the next call do
// the rest.
func (q *recordQueue) repairBare(dead arenakernel.ParticipantID, by bareRepair) (done bool) {
	if dead == q.a.Self() { // this participant leaves the arena, but still counts as current
		q.without = dead
	}
	b := takeWakes()
	defer q.wake(b)
	q.private.Lock()
	defer q.private.Unlock()
	if !q.hasRecord() {
		switch q.complete(q.load(), b); {
		case !by.owes(&q.scratch, b):
			return true
		case !by.makeRecord():
			return false
		}
	}
	by.reap(&q.scratch, b)
	return true
}

// wakeBare wakes the owners of the first waits if this process has no record, and so cannot reap. One of the woken
// owners then reaps. wakeBare is for C programs: a thread there sleeps only on the word of its own wait node. A Go
// process also learns of a death from its poller.
func (q *recordQueue) wakeBare() {
	if !q.hasRecord() {
		q.wakeFirst()
	}
}

// completeBare completes the last change for a bare handle, that is, the handle of a reaper, which cannot wait.
func (q *recordQueue) completeBare() bool {
	b := takeWakes()
	defer q.wake(b)
	return q.complete(q.load(), b) == nil
}

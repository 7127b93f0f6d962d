package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// recordLock is a lock that waiters get in the order of a recordQueue. A FairMutex contains a recordLock, and so does
// each bucket of a MultiLock. In a bucket, the recordLock is the lock of one key at a time: the key that the present
// change concerns.
//
// While the owner word is open, fast paths change it without a record, and no wait is queued. A call whose record
// depends on the owner word closes the word first. A record grants the lock to a wait, and the waiter then accepts
// the grant; see docs/design/0057.
type recordLock struct {
	recordQueue
	lockWords // the words of the lock that the present change concerns; guarded by private in a MultiLock
	hooks     lockHooks
	name      arenakernel.ParticipantID // of this process
	policy    Policy
}

// lockHooks are the methods that a recordLock calls on its FairMutex or its bucket of a MultiLock, in addition to the
// methods of recordedObject.
type lockHooks interface {
	// focusOn makes x a change of the lock that the number wanted identifies. The wait node of each queued wait for
	// this lock has the same number. The result ok is false if the commit word has changed since x began.
	focusOn(x *recordedChange, wanted uint64) (ok bool, err error)
	// closeOwner closes the owner word, so that from then on only records change it, and returns the word.
	closeOwner() recordedWord
	// setOwner extends the change x: the lock gets the state o. The owner word gets a new tag, even if its value
	// stays the same.
	setOwner(x *recordedChange, o ownerWord)
	// valid reports whether o is the state of some lock. Every other value is corrupt.
	valid(o ownerWord) bool
	// died returns the participant whose death has made a lock with the state o not recoverable, or 0 if that
	// participant is not known.
	died(o ownerWord) arenakernel.ParticipantID
	// tidy reaps if a participant has died since the last reap, or if the participant holder is dead or has left.
	// Then it calls serve for the queue or, after a reap in a MultiLock, for all queues of the bucket. serve makes
	// changes of its own. So the caller of tidy begins its change again, and selects its lock again.
	tidy(x *recordedChange, b *wakes, holder arenakernel.ParticipantID) error
	// lockKey returns the key of the lock, or nil if the object has only one lock.
	lockKey() *uint64
	// lockError returns the error of a call that locks. wanted identifies the lock; see focusOn. If died is not 0,
	// the error names that participant.
	lockError(wanted uint64, err error, died arenakernel.ParticipantID, detail string) error
	// closedError returns the error of a call that locks through a closed handle.
	closedError() error
}

// ownerIn returns the state that the lock has after the change x. It first closes the owner word, so that fast paths
// do not change that state meanwhile.
func (l *recordLock) ownerIn(x *recordedChange) ownerWord {
	l.hooks.closeOwner()
	return ownerState(makeRecorded(x.get(l.owner), 0))
}

// lost reports whether nobody can get a lock with the state o, because o is corrupt, owner-dead or not recoverable.
func (l *recordLock) lost(o ownerWord) bool {
	return o.kind() == kindOwnerDead || o.kind() == kindNotRecoverable || !l.hooks.valid(o)
}

// refusal returns the reason why nobody can wait for a lock with the state o, or nil if waiting is possible. wanted
// identifies the lock; see lockHooks.focusOn.
func (l *recordLock) refusal(wanted uint64, o ownerWord) error {
	switch {
	case !l.hooks.valid(o):
		return l.hooks.lockError(wanted, shmsync.ErrCorrupt, 0, o.corrupt())
	case o.kind() == kindOwnerDead:
		return l.hooks.lockError(wanted, shmsync.ErrOwnerDead, o.participant(), "")
	case o.kind() == kindNotRecoverable:
		return l.hooks.lockError(wanted, shmsync.ErrNotRecoverable, l.hooks.died(o), "")
	}
	return nil
}

// commitLock makes the change x take effect, as recordQueue.end does. First it calls the method removed, which may
// open the owner word as a part of x.
func (l *recordLock) commitLock(x *recordedChange, b *wakes) (ok bool, err error) {
	if x.n > 0 {
		l.of.removed(x)
	}
	return l.end(x, b)
}

// settle gives the lock the state next, and makes the change x take effect. If next is the free state and there is a
// wait, the lock is granted to the first wait instead. done is false if the commit word has changed, or if settle has
// taken the wait of a dead process off the queue. Then the caller begins its change again.
func (l *recordLock) settle(x *recordedChange, b *wakes, next ownerWord) (done bool, err error) {
	var granted arenakernel.ParticipantID
	if !next.free() {
		l.hooks.setOwner(x, next)
	} else if n, ok := l.passOn(x); ok {
		granted = n
	} else {
		return false, l.dropFirst(x, b)
	}
	if done, err = l.commitLock(x, b); done {
		l.handedOn(granted)
	}
	return done, err
}

// passOn extends the change x: the lock is granted to the first wait, or becomes free if there is no wait. It also
// becomes free if a peer has overwritten the queue, so that no wait can be taken off. If the owner of the first wait
// is dead, passOn returns false and adds nothing to x; the caller then calls dropFirst. Before the call, x must
// change neither the owner word nor a word of the queue.
func (l *recordLock) passOn(x *recordedChange) (granted arenakernel.ParticipantID, ok bool) {
	n := x.n
	w, waits := l.head(x)
	if waits {
		alive := l.waiting(w)
		if alive {
			granted = l.grant(x, w)
		} else {
			l.detach(x, w, arenakernel.RecordedRemoved)
		}
		if !x.torn && !x.tooMany {
			if !alive {
				x.n = n
			}
			return granted, alive
		}
	}
	x.n, x.torn, x.tooMany = n, false, false // from here on, x changes no word of the queue
	l.hooks.setOwner(x, ownerFree)
	return 0, true
}

// grant extends the change x: the lock is granted to the first wait, w. It returns the participant of that wait.
func (l *recordLock) grant(x *recordedChange, w wait) arenakernel.ParticipantID {
	n := w.Owner() & arenakernel.ParticipantIDMask
	l.hooks.setOwner(x, makeOwner(kindReserved, n))
	l.detach(x, w, arenakernel.RecordedGranted)
	return n
}

// handedOn is called after a change that may have granted the lock to a waiter. granted is the new holder, or 0 if
// there is none. handedOn dates the new hold, and makes the next call reap if the new holder has died meanwhile.
func (l *recordLock) handedOn(granted arenakernel.ParticipantID) {
	if granted != 0 {
		l.counts.dates()
		l.reconsider(granted)
	}
}

// dropFirst takes the first wait off the queue, if its owner is dead. Otherwise it does nothing.
func (l *recordLock) dropFirst(x *recordedChange, b *wakes) error {
	if err := l.begin(x, b); err != nil {
		return err
	}
	w, ok := l.head(x)
	if ok && l.waiting(w) {
		return nil
	}
	if ok {
		l.detach(x, w, arenakernel.RecordedRemoved)
	}
	_, err := l.commitLock(x, b)
	return err
}

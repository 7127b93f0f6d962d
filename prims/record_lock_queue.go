package prims

import (
	"context"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// lockResult says how one attempt to lock with a record ended.
type lockResult uint8

const (
	lockTaken  lockResult = iota // the call has the lock now
	lockQueued                   // the wait is queued
	lockNotNow                   // another call holds the lock, or waits for it
	lockAgain                    // words have changed, by other calls or by tidy; the call begins again
	lockReady                    // a MultiLock has found an entry for the key; the call goes on
	lockNoRoom                   // all entries of the bucket of a MultiLock are in use
)

// lockCall is a call that locks with a record.
type lockCall struct {
	ctx    context.Context // its end ends the call; may be nil
	s      *park.WaitNode  // the prepared wait node of the call, or nil if the call does not wait
	wanted uint64          // identifies the lock; see lockHooks.focusOn
	served bool            // the call has called tidy, which it does only once
}

// tryLock is one attempt of the call t to lock, as a part of the change x, which has begun. If the lock is free and
// nobody waits, the call gets the lock. Otherwise, if t.s is not nil, tryLock queues the wait of t.s. If t.s is nil,
// tryLock changes nothing while a living process holds the lock. The caller holds l.private.
func (l *recordLock) tryLock(x *recordedChange, b *wakes, t *lockCall) (lockResult, error) {
	if t.s == nil && x.n == 0 {
		n := ownerState(recordedWord(l.owner.Load())).holder()
		if n != 0 && !l.absent(n) && !l.a.Dead(n) && l.load() == x.c {
			return lockNotNow, nil
		}
	}
	o := l.ownerIn(x)
	n := o.holder()
	enough := o.free() && l.empty(x)
	if x.n > 0 && !enough { // x gives an unused entry to the key of this call, so the lock must be free
		if l.load() != x.c {
			return lockAgain, nil
		}
		return lockNotNow, l.of.corrupt("an entry of a free key")
	}
	var refused error
	switch {
	case !t.served && (l.reapDue() || o.free() && !enough || l.lost(o) && !l.empty(x) || n != 0 && l.a.Dead(n)):
		t.served = true
		if err := l.hooks.tidy(x, b, n); err != nil {
			return lockNotNow, err
		}
		return lockAgain, nil
	case enough:
		l.hooks.setOwner(x, makeOwner(kindHeld, l.name))
	case l.lost(o):
		refused = l.refusal(t.wanted, o)
	case t.s == nil:
	case t.ctx != nil && t.ctx.Err() != nil:
		refused = t.ctx.Err()
	default:
		l.join(x, t.s)
	}
	joins := refused == nil && !enough && t.s != nil
	switch ok, err := l.commitLock(x, b); {
	case err != nil:
		return lockNotNow, err
	case !ok:
		return lockAgain, nil
	case enough:
		l.counts.holds(false)
		return lockTaken, nil
	case joins:
		l.counts.add(countContended)
		return lockQueued, nil
	}
	return lockNotNow, refused
}

// serve grants a free lock to the first wait in the queue. If nobody can get the lock, serve ends all waits with an
// error. If the owner of the first wait is dead, serve takes that wait off the queue and goes on with the next. If other
// processes change the object all the time, serve leaves the rest to the periodic checks of the waiters. The caller
// holds l.private.
func (l *recordLock) serve(x *recordedChange, b *wakes) error {
	for until := l.until(); l.overtaken < until; {
		// The loop repeats only after it has taken a wait off the queue, or after another call has changed the object.
		if err := l.begin(x, b); err != nil {
			return err
		}
		w, ok := l.head(x)
		if !ok && !x.torn {
			return nil
		}
		var granted arenakernel.ParticipantID
		if ok {
			switch o := l.ownerIn(x); {
			case !l.waiting(w):
				l.detach(x, w, arenakernel.RecordedRemoved)
			case l.lost(o):
				l.refuse(x, w, o)
			case o.free():
				granted = l.grant(x, w)
			}
		}
		none := x.n == 0
		switch ok, err := l.commitLock(x, b); {
		case err != nil:
			return err
		case !ok:
		case none:
			return nil
		default:
			l.handedOn(granted)
		}
	}
	return nil
}

// refuse extends the change x: the first wait, w, ends with an error, because nobody can get a lock with the state o.
// w.Extra gets the reason: the state of the lock, with the participant that has died.
func (l *recordLock) refuse(x *recordedChange, w wait, o ownerWord) {
	l.detach(x, w, arenakernel.RecordedRefused)
	switch {
	case !l.hooks.valid(o):
		o = ^ownerWord(0)
	case o.kind() == kindNotRecoverable:
		o = makeOwner(kindNotRecoverable, l.hooks.died(o))
	}
	x.set(recordPrev, w.index(), w.Extra(), uint32(o))
}

// lockWaits is a recordLock as the Withdrawer of its wait nodes; see [park.WaitNode].
type lockWaits recordLock

// Withdraw calls the method withdraw.
func (l *lockWaits) Withdraw(s *park.WaitNode) bool { return (*recordLock)(l).withdraw(s) }

// withdraw ends a wait of this process that gives up. It takes the wait off the queue and off the list of waits of
// this process, and puts the wait node back into its pool. It reports false if the wait was already granted or
// refused.
func (l *recordLock) withdraw(s *park.WaitNode) bool {
	b := takeWakes()
	defer l.wake(b)
	l.private.Lock()
	defer l.private.Unlock()
	x, w := &l.scratch, wait{s.Off, s.Node}
	for tidied := l.queue.Closing(); ; {
		// The loop repeats only if another call has changed the object, and once after a reap. So withdraw is lock-free.
		err := l.begin(x, b)
		v := x.get(w.Next())
		switch {
		case err != nil:
		case arenakernel.RecordedEnds(v) && s.Resolved():
			return false
		case queuedValue(v):
			var ok bool
			ok, err = l.hooks.focusOn(x, w.Wanted().Load())
			if ok && !tidied {
				// If the holder is dead and gone, a reap ends the wait. That takes precedence over the end of the
				// context, but not over the Close of the handle.
				tidied = true
				if n := l.ownerIn(x).holder(); l.reapDue() || n != 0 && l.a.Dead(n) {
					l.hooks.tidy(x, b, n) // if a peer has overwritten the queue, the next iteration finds that, too
					continue
				}
			}
			if ok {
				l.detach(x, w, arenakernel.RecordedLeft)
				ok, err = l.commitLock(x, b)
			}
			if err == nil && !ok {
				continue
			}
		case l.load() != x.c:
			continue // a record that ends the wait may not be completely carried out yet
		default: // a peer has overwritten the node
			dropWait(s)
			return true
		}
		if err != nil { // a peer has overwritten the queue, which may still name the node
			dropWait(s)
			return true
		}
		if s.OnLine() {
			s.LeaveLine(false)
		}
		l.unused(s)
		l.serve(x, b)
		return true
	}
}

// dropWait gives up a wait node. It does not put the node back into its pool, because a peer has overwritten words,
// and the queue may still name the node.
func dropWait(s *park.WaitNode) {
	if s.OnLine() {
		s.LeaveLine(false)
	}
	s.Forget()
}

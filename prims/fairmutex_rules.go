package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// fairResult says how an attempt to lock a FairMutex, or a key of a MultiLock, with a record ended. A record is a
// list of new values in shared memory that any process can carry out; see recordQueue.
type fairResult uint8

const (
	fairTaken  fairResult = iota // the lock is held
	fairQueued                   // the wait is queued
	fairNotNow                   // another call holds the lock, or waits for it
	fairNoRoom                   // a MultiLock has no entry for the key
)

// The numbers by which a record names the words of a FairMutex that it changes.
const (
	fairOwnerWord = recordOwnKinds + iota
	fairDiedWord
)

// mayOpen reports whether the owner word of f may be open, that is, whether fast paths may change it without a
// record. With the race detector, every call makes a record, so that the detector sees which calls synchronize.
// In an arena that counts, every call makes a record, so that it is counted.
func (f *FairMutex) mayOpen() bool { return !race.Enabled && f.counts == nil }

// lockFast locks f if its owner word is open, so that fast paths may change it, and says that f is free. It
// reports whether it did.
func (f *FairMutex) lockFast() bool {
	// sync(fairmutex.owner): acquire
	// lin: the lock is taken here.
	if !f.mayOpen() || !atomic.CompareAndSwapUint32(f.words.value(), fairFree, f.held) {
		return false
	}
	crashpoint.Hit("fairmutex.lock.taken")
	return true
}

// unlockFast unlocks f if its owner word is open, so that fast paths may change it, and this process holds f.
// It reports whether it did.
func (f *FairMutex) unlockFast() bool {
	// sync(fairmutex.owner): release
	// lin: the lock is released here.
	if !f.mayOpen() || !atomic.CompareAndSwapUint32(f.words.value(), f.held, fairFree) {
		return false
	}
	crashpoint.Hit("fairmutex.unlock.freed")
	return true
}

// ownerIn returns the state that the lock has after the change x. It closes the owner word, so that fast paths
// do not change that state meanwhile.
func (f *FairMutex) ownerIn(x *recordedChange) ownerWord {
	closeFair(&f.words.owner)
	return fairState(makeRecorded(x.get(&f.words.owner), 0))
}

// setOwner adds to the change x that the lock gets the state o. The owner word gets a new tag, even if its
// value stays the same. So each grant has another tag than the grant before, also if the same participant is
// granted the lock twice in a row.
func (f *FairMutex) setOwner(x *recordedChange, o ownerWord) {
	x.renew(fairOwnerWord, 0, &f.words.owner, uint32(o))
}

func (f *FairMutex) setDied(x *recordedChange, n arenakernel.ParticipantID) {
	x.set(fairDiedWord, 0, &f.words.died, uint32(n))
}

// commitFair makes the change x take effect, as recordQueue.end does. If x leaves the queue empty, and the lock
// free or held by a living holder, x also opens the owner word, so that fast paths can change it.
func (f *FairMutex) commitFair(x *recordedChange, b *wakes) (ok bool, err error) {
	if x.n > 0 {
		f.removed(x)
	}
	return f.end(x, b)
}

// removed adds to the change x that the owner word is open, so that fast paths can change it. It does so only
// if the queue is empty after x and the lock is free or held.
func (f *FairMutex) removed(x *recordedChange) {
	if f.mayOpen() && f.empty(x) {
		if o := f.ownerIn(x); o.kind() == kindHeld {
			x.set(fairOwnerWord, 0, &f.words.owner, uint32(fairOpened(o)))
		}
	}
}

// take locks f with a record if the lock is free and nobody waits. Otherwise, if s is not nil, it queues the
// wait of the prepared wait node s, and appends s to turns if turns is not nil. If take returns fairQueued with
// an error, the wait may be queued. If s is nil, take changes nothing while a living process holds the lock.
func (f *FairMutex) take(ctx context.Context, s *park.WaitNode, turns *park.Turns) (fairResult, error) {
	b := takeWakes()
	defer f.wake(b) // runs after f.private is released
	f.private.Lock()
	defer f.private.Unlock()
	x, served := &f.scratch, false
	for {
		// The loop repeats only after a change by another call, or after this call has made a change that it
		// makes only once. So the loop is lock-free.
		if err := f.begin(x, b); err != nil {
			return fairNotNow, err
		}
		if s == nil {
			n := fairState(fairWord(f.words.owner.Load())).holder()
			if n != 0 && !f.absent(n) && !f.a.Dead(n) && f.load() == x.c {
				return fairNotNow, nil
			}
		}
		o := f.ownerIn(x)
		n := o.holder()
		enough := o.free() && f.empty(x)
		var refused error
		switch {
		case !served && (f.reapDue() || o.free() && !enough || o.lost() && !f.empty(x) || n != 0 && f.a.Dead(n)):
			served = true
			if err := f.tidy(x, b, n); err != nil {
				return fairNotNow, err
			}
			continue
		case enough:
			f.setOwner(x, makeOwner(kindHeld, f.name))
		case o.lost():
			refused = f.refusal("fairmutex.lock", o, f.diedName())
		case s == nil:
		case ctx != nil && ctx.Err() != nil:
			refused = ctx.Err()
		default:
			f.join(x, s)
		}
		joins := refused == nil && !enough && s != nil
		switch ok, err := f.commitFair(x, b); {
		case err != nil && x.made && joins:
			return fairQueued, err
		case err != nil:
			return fairNotNow, err
		case !ok:
		case enough:
			crashpoint.Hit("fairmutex.lock.taken")
			race.Acquire(f.key)
			f.counts.holds(false)
			return fairTaken, nil
		case joins:
			f.counts.add(countContended)
			if turns != nil {
				turns.Append(s)
			}
			return fairQueued, nil
		default:
			return fairNotNow, refused
		}
	}
}

// tidy reaps if a participant has died since the last reap, or if the participant holder is dead. Then it
// serves the queue.
func (f *FairMutex) tidy(x *recordedChange, b *wakes, holder arenakernel.ParticipantID) error {
	if f.reapDue() || f.absent(holder) {
		if err := f.reap(x, b); err != nil {
			return err
		}
	}
	return f.serve(x, b)
}

// give unlocks f with a record, which grants the lock to the first wait in the queue. If this process does not
// hold the lock, held is false and the result named not is the state of the lock.
func (f *FairMutex) give() (not ownerWord, held bool, err error) {
	race.ReleaseMerge(f.key)
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x := &f.scratch
	for {
		// The loop repeats only after it has taken a wait off the queue, or after another call has changed the
		// FairMutex.
		if err := f.begin(x, b); err != nil {
			return 0, true, err
		}
		v := closeFair(&f.words.owner)
		if o := f.stateOf(v); o != makeOwner(kindHeld, f.name) {
			if f.load() != x.c {
				continue
			}
			return o, false, nil
		}
		granted, ok := f.passOn(x)
		if !ok {
			if err := f.dropFirst(x, b); err != nil {
				return 0, true, err
			}
			continue
		}
		switch ok, err := f.commitFair(x, b); {
		case err != nil:
			return 0, true, err
		case ok:
			f.handedOn(granted)
			crashpoint.Hit("fairmutex.unlock.committed")
			return 0, true, nil
		}
	}
}

// passOn adds to the change x that the lock is granted to the first wait, or becomes free if there is no wait.
// If the owner of the first wait is dead, passOn returns false and adds nothing to x. If a peer has overwritten
// the queue, the lock becomes free.
func (f *FairMutex) passOn(x *recordedChange) (granted arenakernel.ParticipantID, ok bool) {
	y := *x
	w, waits := f.head(&y)
	if waits && !f.waiting(w) {
		return 0, false
	}
	if waits {
		if granted = f.grant(&y, w); !y.torn && !y.tooMany {
			*x = y
			return granted, true
		}
	}
	f.setOwner(x, ownerFree)
	return 0, true
}

// grant adds to the change x that the first wait, w, is granted the lock. It returns the participant of that
// wait.
func (f *FairMutex) grant(x *recordedChange, w wait) arenakernel.ParticipantID {
	n := w.Owner() & arenakernel.ParticipantIDMask
	f.setOwner(x, makeOwner(kindReserved, n))
	f.detach(x, w, arenakernel.RecordedGranted)
	return n
}

// handedOn is called after a change of the lock. granted is the participant that the change has granted the
// lock to, or 0 if there is none.
func (f *FairMutex) handedOn(granted arenakernel.ParticipantID) {
	if granted != 0 {
		f.counts.dates()
		f.reconsider(granted)
	}
}

// dropFirst takes the first wait off the queue, if its owner is dead. Otherwise it does nothing.
func (f *FairMutex) dropFirst(x *recordedChange, b *wakes) error {
	if err := f.begin(x, b); err != nil {
		return err
	}
	w, ok := f.head(x)
	if ok && f.waiting(w) {
		return nil
	}
	if ok {
		f.detach(x, w, arenakernel.RecordedRemoved)
	}
	_, err := f.commitFair(x, b)
	return err
}

// serve grants a free lock to the first wait in the queue. If nobody can get the lock, serve ends all waits
// with an error. If the owner of the first wait is dead, serve takes that wait off the queue and goes on with
// the next. The caller holds f.private.
func (f *FairMutex) serve(x *recordedChange, b *wakes) error {
	for {
		// The loop repeats only after it has taken a wait off the queue, or after another call has changed the
		// FairMutex.
		if err := f.begin(x, b); err != nil {
			return err
		}
		w, ok := f.head(x)
		if !ok && !x.torn {
			return nil
		}
		var granted arenakernel.ParticipantID
		if ok {
			switch o := f.ownerIn(x); {
			case !f.waiting(w):
				f.detach(x, w, arenakernel.RecordedRemoved)
			case o.lost():
				f.refuse(x, w, o)
			case o.free():
				granted = f.grant(x, w)
			}
		}
		none := x.n == 0
		switch ok, err := f.commitFair(x, b); {
		case err != nil:
			return err
		case !ok:
		case none:
			return nil
		default:
			f.handedOn(granted)
		}
	}
}

// refuse adds to the change x that the first wait, w, ends without the lock, because nobody can get a lock with
// the state o. It stores the reason in the word extra of the wait node.
func (f *FairMutex) refuse(x *recordedChange, w wait, o ownerWord) {
	f.detach(x, w, arenakernel.RecordedRefused)
	switch {
	case !o.valid():
		o = ^ownerWord(0)
	case o == ownerNotRecoverable:
		o = makeOwner(kindNotRecoverable, f.diedName())
	}
	x.set(recordPrev, w.index(), w.Extra(), uint32(o))
}

// fairWaits is a FairMutex as the Withdrawer of a [park.WaitNode], that is, as the object that takes the wait
// of such a node off its queue.
type fairWaits FairMutex

// Withdraw calls the method withdraw.
func (f *fairWaits) Withdraw(s *park.WaitNode) bool { return (*FairMutex)(f).withdraw(s) }

// withdraw ends a wait of this process that gives up. It takes the wait off the queue and off the list of waits
// of this process, and gives its wait node back. It reports false if the wait was already granted or refused.
func (f *FairMutex) withdraw(s *park.WaitNode) bool {
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x, w := &f.scratch, wait{s.Off, s.Node}
	for {
		// The loop repeats only if another call has changed the FairMutex. So it is lock-free.
		err := f.begin(x, b)
		v := x.get(w.Next())
		switch {
		case err != nil:
		case arenakernel.RecordedEnds(v) && s.Resolved():
			return false
		case queuedValue(v):
			f.detach(x, w, arenakernel.RecordedLeft)
			var ok bool
			if ok, err = f.commitFair(x, b); err == nil && !ok {
				continue
			}
		case f.load() != x.c:
			continue // the record that ends the wait may be only partly carried out
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
		f.unused(s)
		f.serve(x, b)
		return true
	}
}

// dropWait gives up a wait node without giving it back: a peer has overwritten words, so the queue may
// still name the node.
func dropWait(s *park.WaitNode) {
	if s.OnLine() {
		s.LeaveLine(false)
	}
	s.Forget()
}

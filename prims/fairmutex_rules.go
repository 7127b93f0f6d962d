package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// fairResult says how an attempt to lock through a record ended.
type fairResult uint8

const (
	fairTaken  fairResult = iota // the lock is held
	fairQueued                   // the wait is queued
	fairNotNow                   // another call holds the lock, or waits for it
)

// The kinds of the words of a FairMutex that a record can change.
const (
	fairOwnerWord = recordOwnKinds + iota
	fairDiedWord
)

// mayOpen reports whether the owner word of f may be open. With the race detector every call makes
// a record, so that the detector sees its edges. In an arena that counts, every call makes a record
// for the counts.
func (f *FairMutex) mayOpen() bool { return !race.Enabled && f.counts == nil }

// lockFast locks f if its owner word is open and free. It reports whether it did.
func (f *FairMutex) lockFast() bool {
	// sync(fairmutex.owner): acquire
	// lin: the lock is taken here.
	if !f.mayOpen() || !atomic.CompareAndSwapUint32(f.words.value(), fairFree, f.held) {
		return false
	}
	crashpoint.Hit("fairmutex.lock.taken")
	return true
}

// unlockFast unlocks f if its owner word is open and this process holds f. It reports whether it did.
func (f *FairMutex) unlockFast() bool {
	// sync(fairmutex.owner): release
	// lin: the lock is released here.
	if !f.mayOpen() || !atomic.CompareAndSwapUint32(f.words.value(), f.held, fairFree) {
		return false
	}
	crashpoint.Hit("fairmutex.unlock.freed")
	return true
}

// ownerIn returns the state that the lock has after the change x. It closes the owner word.
func (f *FairMutex) ownerIn(x *recordedChange) ownerWord {
	closeFair(&f.words.owner)
	return fairState(makeRecorded(x.get(&f.words.owner), 0))
}

// setOwner adds to x that the lock gets the state o. Each grant gets a new tag, even if the same
// participant is granted the lock twice in a row.
func (f *FairMutex) setOwner(x *recordedChange, o ownerWord) {
	x.renew(fairOwnerWord, 0, &f.words.owner, uint32(o))
}

func (f *FairMutex) setDied(x *recordedChange, n arenakernel.ParticipantID) {
	x.set(fairDiedWord, 0, &f.words.died, uint32(n))
}

// commitFair makes the change x take effect, as end does. It opens the owner word if x leaves the
// queue empty, and the lock free or held by a living holder.
func (f *FairMutex) commitFair(x *recordedChange, b *wakes) (ok bool, err error) {
	if x.n > 0 {
		f.removed(x)
	}
	return f.end(x, b)
}

// removed adds to x that the owner word is open, if the queue is empty after x and the lock is free or held by name.
func (f *FairMutex) removed(x *recordedChange) {
	if f.mayOpen() && f.empty(x) {
		if o := f.ownerIn(x); o.kind() == kindHeld {
			x.set(fairOwnerWord, 0, &f.words.owner, uint32(fairOpened(o)))
		}
	}
}

// take locks f through a record if the lock is free and nobody waits. Otherwise, if s is not nil,
// it queues the wait of the prepared node s, and appends s to its line in turns if turns is not
// nil. The result fairQueued with an error means that the wait may be queued. If s is nil, take
// changes nothing while a living process holds the lock.
func (f *FairMutex) take(ctx context.Context, s *park.WaitNode, turns *park.Turns) (fairResult, error) {
	b := takeWakes()
	defer f.wake(b) // runs after f.private is released
	f.private.Lock()
	defer f.private.Unlock()
	x, served := &f.scratch, false
	for {
		// The loop is lock-free: each iteration follows a change by another call to the FairMutex,
		// or makes one that is made once.
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

// tidy reaps if a reap is due or holder is dead, and then serves the queue.
func (f *FairMutex) tidy(x *recordedChange, b *wakes, holder arenakernel.ParticipantID) error {
	if f.reapDue() || f.absent(holder) {
		if err := f.reap(x, b); err != nil {
			return err
		}
	}
	return f.serve(x, b)
}

// give unlocks f through a record, which grants the lock to the first wait. If this process does
// not hold the lock, held is false and not is the state of the lock.
func (f *FairMutex) give() (not ownerWord, held bool, err error) {
	race.ReleaseMerge(f.key)
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x := &f.scratch
	for {
		// Each iteration takes a wait off the queue, or means that another call has changed the
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

// passOn adds to x that the lock becomes free or is granted to the first wait. If the owner of the
// first wait is dead, it reports false and adds nothing to x. If a peer has overwritten the queue,
// the lock becomes free.
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

// grant adds to x that the first wait is granted the lock, and returns the participant of that wait.
func (f *FairMutex) grant(x *recordedChange, w wait) arenakernel.ParticipantID {
	n := w.Owner() & arenakernel.ParticipantIDMask
	f.setOwner(x, makeOwner(kindReserved, n))
	f.detach(x, w, arenakernel.RecordedGranted)
	return n
}

// handedOn is called after a change that has granted the lock to a participant, or to nobody (0).
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

// serve grants a free lock to the first wait. If nobody can get the lock, it ends all waits. It
// takes the first wait off the queue as long as the owner of that wait is dead. The caller holds
// f.private.
func (f *FairMutex) serve(x *recordedChange, b *wakes) error {
	for {
		// Each iteration takes a wait off the queue, or means that another call has changed the
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

// refuse adds to x that the first wait ends without the lock, because nobody can get a lock with
// the state o. The word extra of the wait's node gets the reason.
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

// fairWaits is the type of a FairMutex as the Withdrawer of a [park.WaitNode].
type fairWaits FairMutex

// Withdraw is withdraw.
func (f *fairWaits) Withdraw(s *park.WaitNode) bool { return (*FairMutex)(f).withdraw(s) }

// withdraw takes a wait of this process off the queue and off its line, and gives its wait node
// back. It reports false if the wait was already granted or refused.
func (f *FairMutex) withdraw(s *park.WaitNode) bool {
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x, w := &f.scratch, wait{s.Off, s.Node}
	for {
		// Each iteration means that another call has changed the FairMutex, so the loop is
		// lock-free.
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
			continue // the record that ends the wait may be incomplete
		default: // a peer has overwritten the node
			f.drop(s)
			return true
		}
		if err != nil { // a peer has overwritten the queue, which may name the node
			f.drop(s)
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

// drop gives up a wait node without giving it back: a peer has overwritten words, so the queue may
// still name the node.
func (f *FairMutex) drop(s *park.WaitNode) {
	if s.OnLine() {
		s.LeaveLine(false)
	}
	s.Forget()
}

package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// fairResult says how an attempt to lock by a record ended.
type fairResult uint8

const (
	fairTaken  fairResult = iota // the lock is held
	fairQueued                   // the wait is queued
	fairNotNow                   // the lock is held by another call, or others wait
)

// The words of a FairMutex that records change.
const (
	fairOwnerWord = recordOwnKinds + iota
	fairDiedWord
)

// mayOpen reports whether the owner word of f may be open. With the race detector all calls make records, for its
// edges, and in an arena that counts, for the counts.
func (f *FairMutex) mayOpen() bool { return !race.Enabled && f.counts == nil }

// lockFast locks a lock that is open and free.
func (f *FairMutex) lockFast() bool {
	// sync(fairmutex.owner): acquire
	// lin: the lock is taken here.
	if !f.mayOpen() || !atomic.CompareAndSwapUint32(f.words.value(), fairFree, f.held) {
		return false
	}
	crashpoint.Hit("fairmutex.lock.taken")
	return true
}

// unlockFast unlocks a lock that is open and that this process holds.
func (f *FairMutex) unlockFast() bool {
	// sync(fairmutex.owner): release
	// lin: the lock is released here.
	if !f.mayOpen() || !atomic.CompareAndSwapUint32(f.words.value(), f.held, fairFree) {
		return false
	}
	crashpoint.Hit("fairmutex.unlock.freed")
	return true
}

// ownerIn is the state of the lock after the change x. It closes the owner word.
func (f *FairMutex) ownerIn(x *recordedChange) ownerWord {
	closeFair(&f.words.owner)
	return fairState(makeRecorded(x.get(&f.words.owner), 0))
}

// setOwner adds to x that the lock has the state o. Each grant has a tag of its own, even if the same
// participant is granted the lock twice in a row.
func (f *FairMutex) setOwner(x *recordedChange, o ownerWord) {
	x.renew(fairOwnerWord, 0, &f.words.owner, uint32(o))
}

func (f *FairMutex) setDied(x *recordedChange, n arenakernel.ParticipantID) {
	x.set(fairDiedWord, 0, &f.words.died, uint32(n))
}

// commitFair makes the change x take effect, as end. It opens the owner word if x leaves the queue empty, and
// the lock free or held by name.
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

// take locks f by a record, if it is free and nobody waits. Otherwise it queues the wait of a prepared node, which
// may be nil, as the last of its line in turns, if turns is not nil. fairQueued with an error says that the wait may be
// queued. Without a node it leaves a lock alone that a living process holds.
func (f *FairMutex) take(ctx context.Context, s *park.WaitNode, turns *park.Turns) (fairResult, error) {
	b := takeWakes()
	defer f.wake(b) // runs after the lock is released
	f.private.Lock()
	defer f.private.Unlock()
	x, served := &f.scratch, false
	for {
		// The loop ends: each turn follows a change by another call, or makes one that is made once.
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

// tidy reaps if that is due or holder is dead, and serves the queue.
func (f *FairMutex) tidy(x *recordedChange, b *wakes, holder arenakernel.ParticipantID) error {
	if f.reapDue() || f.absent(holder) {
		if err := f.reap(x, b); err != nil {
			return err
		}
	}
	return f.serve(x, b)
}

// give unlocks f by a record, which grants it to the first wait. The result is the state of the lock if this process
// does not hold it, and 0 otherwise.
func (f *FairMutex) give() (not ownerWord, held bool, err error) {
	race.ReleaseMerge(f.key)
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x := &f.scratch
	for {
		// The loop ends: each turn follows a change by another call, or takes a wait off the queue.
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

// passOn adds to x that the lock is free, or granted to the first wait. It reports false if the owner of that
// wait is dead; then it has added nothing. If a peer has overwritten the queue, the lock is free.
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

// grant adds to x that the lock is granted to the first wait, and returns the participant of that wait.
func (f *FairMutex) grant(x *recordedChange, w wait) arenakernel.ParticipantID {
	n := w.Owner() & arenakernel.ParticipantIDMask
	f.setOwner(x, makeOwner(kindReserved, n))
	f.detach(x, w, arenakernel.RecordedGranted)
	return n
}

// handedOn follows a change that has granted the lock to a participant, or to nobody.
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

// serve grants a free lock to the first wait, ends all waits of a lock that nobody can get, and takes waits of the dead
// off that are first. private is held.
func (f *FairMutex) serve(x *recordedChange, b *wakes) error {
	for {
		// The loop ends: each turn follows a change by another call, or takes a wait off the queue.
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

// refuse adds to x that the first wait ends because nobody can get a lock with the state o. The word extra of its
// node says why.
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

// fairWaits is a FairMutex for [park.WaitNode].
type fairWaits FairMutex

// Withdraw is withdraw.
func (f *fairWaits) Withdraw(s *park.WaitNode) bool { return (*FairMutex)(f).withdraw(s) }

// withdraw takes a wait of this process off the queue and off its line, and gives its wait node back. It reports false
// if the wait was granted or refused.
func (f *FairMutex) withdraw(s *park.WaitNode) bool {
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x, w := &f.scratch, wait{s.Off, s.Node}
	for {
		// The loop ends: each turn follows a change by another call.
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
			continue // the record that ends it may be incomplete
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

// drop gives up a wait node that the queue may name, because a peer has overwritten words.
func (f *FairMutex) drop(s *park.WaitNode) {
	if s.OnLine() {
		s.LeaveLine(false)
	}
	s.Forget()
}

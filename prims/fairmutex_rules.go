package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// The numbers by which a record names the words of a FairMutex that it changes.
const (
	fairOwnerWord = recordOwnKinds + iota
	fairDiedWord
)

// mayOpen reports whether the owner word of f may be open, that is, whether fast paths may change it without a record.
// A build with the race detector uses no fast paths, because the detector would not see that they synchronize. An
// arena that counts uses none, because fast paths count nothing.
func (f *FairMutex) mayOpen() bool { return !race.Enabled && f.counts == nil }

// lockFast locks f by a CAS, without a record, and reports whether it did. The CAS succeeds only if the owner word
// is open and says that f is free.
func (f *FairMutex) lockFast() bool {
	// sync(fairmutex.owner): acquire
	// lin: the lock is taken here.
	if !f.mayOpen() || !atomic.CompareAndSwapUint32(f.words.value(), fairFree, f.held) {
		return false
	}
	crashpoint.Hit("fairmutex.lock.taken")
	return true
}

// unlockFast unlocks f by a CAS, without a record, and reports whether it did. The CAS succeeds only if the owner
// word is open and says that this process holds f.
func (f *FairMutex) unlockFast() bool {
	// sync(fairmutex.owner): release
	// lin: the lock is released here.
	if !f.mayOpen() || !atomic.CompareAndSwapUint32(f.words.value(), f.held, fairFree) {
		return false
	}
	crashpoint.Hit("fairmutex.unlock.freed")
	return true
}

// closeOwner closes the owner word, so that from then on only records change it. The recordLock calls it.
func (f *FairMutex) closeOwner() recordedWord { return closeFair(&f.words.owner) }

// setOwner makes the change x store o in the owner word. The word gets a new tag, even if its value stays the same. So
// two grants in a row have different tags, even if both are for the same participant. If o is owner-dead, x also
// stores the ID in o in f.words.died.
func (f *FairMutex) setOwner(x *recordedChange, o ownerWord) {
	x.renew(fairOwnerWord, 0, &f.words.owner, uint32(o))
	if o.kind() == kindOwnerDead {
		f.setDied(x, o.participant())
	}
}

func (f *FairMutex) setDied(x *recordedChange, n arenakernel.ParticipantID) {
	x.set(fairDiedWord, 0, &f.words.died, uint32(n))
}

// removed makes the change x open the owner word for fast paths, if x leaves the queue empty, and leaves the lock free
// or held.
func (f *FairMutex) removed(x *recordedChange) {
	if f.mayOpen() && f.empty(x) {
		if o := f.ownerIn(x); o.kind() == kindHeld {
			x.set(fairOwnerWord, 0, &f.words.owner, uint32(ownerOpened(o)))
		}
	}
}

// The next five methods, and closeOwner, setOwner, tidy and closedError, implement lockHooks for a FairMutex.

func (f *FairMutex) focusOn(*recordedChange, uint64) (bool, error) { return true, nil }
func (f *FairMutex) valid(o ownerWord) bool                        { return o.valid() }
func (f *FairMutex) died(ownerWord) arenakernel.ParticipantID      { return f.diedName() }
func (f *FairMutex) lockKey() *uint64                              { return nil }

func (f *FairMutex) lockError(_ uint64, err error, died arenakernel.ParticipantID, detail string) error {
	return f.fail("fairmutex.lock", err, f.a.Who(died), detail)
}

// take locks f with a record if the lock is free and nobody waits. Otherwise it queues the wait node s, which the
// caller has prepared. If turns is not nil, it also appends s to turns. A nil s is for a call that does not wait:
// while a living process holds the lock, take then changes nothing.
func (f *FairMutex) take(ctx context.Context, s *park.WaitNode, turns *park.Turns) (lockResult, error) {
	b := takeWakes()
	defer f.wake(b) // runs after f.private is released
	f.private.Lock()
	defer f.private.Unlock()
	x, t := &f.scratch, lockCall{ctx: ctx, s: s}
	for {
		// The loop repeats only after a change by another call, or after this call has made a change that it
		// makes only once. So the loop is lock-free.
		if err := f.begin(x, b); err != nil {
			return lockNotNow, err
		}
		r, err := f.tryLock(x, b, &t)
		switch {
		case r == lockAgain:
			continue
		case r == lockTaken:
			crashpoint.Hit("fairmutex.lock.taken")
			race.Acquire(f.key)
		case r == lockQueued && turns != nil:
			turns.Append(s)
		}
		return r, err
	}
}

// tidy reaps if a participant has died since the last reap, or if the parameter holder names a dead participant. Then
// it ends the waits in the queue that can end; see serve.
func (f *FairMutex) tidy(x *recordedChange, b *wakes, holder arenakernel.ParticipantID) error {
	if f.reapDue() || f.absent(holder) {
		if err := f.reap(x, b); err != nil {
			return err
		}
	}
	return f.serve(x, b)
}

// give unlocks f with a record, which grants the lock to the first wait in the queue. If this process does not hold
// the lock, the result held is false, and the first result is the state of the lock.
func (f *FairMutex) give() (not ownerWord, held bool, err error) {
	race.ReleaseMerge(f.key)
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x := &f.scratch
	for {
		// The loop repeats only after this call has taken a wait off the queue, or after another call has changed
		// the FairMutex.
		if err := f.begin(x, b); err != nil {
			return 0, true, err
		}
		if o := f.stateOf(f.closeOwner()); o != makeOwner(kindHeld, f.name) {
			if f.load() != x.c {
				continue
			}
			return o, false, nil
		}
		switch done, err := f.settle(x, b, ownerFree); {
		case err != nil:
			return 0, true, err
		case done:
			crashpoint.Hit("fairmutex.unlock.committed")
			return 0, true, nil
		}
	}
}

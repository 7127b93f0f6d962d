package prims

import (
	"context"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// How a wait for a FairMutex or a key of a MultiLock ends; outcome.result.
const (
	lockGranted uint32 = iota
	lockOwnerDead
	lockNotRecoverable
	lockCorrupt
)

// fairOwner reports whether o may be the owner word of a FairMutex. A word of kind
// reserved says that the lock was granted to a waiter of that process, which has not
// accepted it.
func fairOwner(o ownerWord) bool { return o.valid() && o.kind() != kindBiased }

// granted reports whether o is a grant that its waiter has not accepted.
func (w ownerWord) granted() bool { return w.kind() == kindReserved && w.participant() != 0 }

func (f *FairMutex) ownerWord() ownerWord {
	v := f.words.owner.Load()
	if v>>32 != 0 {
		return ^ownerWord(0) // a peer wrote that
	}
	return ownerWord(v)
}

func (f *FairMutex) diedName() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(f.words.died.Load() & arenakernel.ParticipantIDMask)
}

// free reports whether a comer may have the lock now. The queue lock is held.
func (f *FairMutex) free() bool { return f.words.owner.Load() == 0 && f.fifo.empty() }

// take makes this process the holder of a lock that is free.
func (f *FairMutex) take() {
	if c := f.mon.counts; c != nil {
		c.holds(false)
	}
	// lin: the lock is taken here.
	storeWord(&f.words.owner, uint64(f.name))
	crashpoint.Hit("fairmutex.lock.taken")
}

// lockSlow is the rest of lock, with the queue lock held. A caller that has been told of a
// death and may repair, but finds others at it, gets in the queue again.
func (f *FairMutex) lockSlow(ctx context.Context, mayRepair bool) error {
	mayRepair = mayRepair && f.repair != nil
	// Close waits for a call that may be granted the lock, until it has accepted it.
	if err := f.mon.begin(); err != nil {
		f.mon.leave(nil)
		return err
	}
	defer f.mon.finish()
	for {
		waitNode, err := f.arrive(ctx, f.turns)
		if waitNode != nil {
			var end outcome
			if end, err = f.mon.await(ctx, waitNode); err != nil {
				return err
			}
			if err = f.judge(end); err == nil {
				if err = f.accept(); err != nil {
					f.turns.HoldEnded()
				}
			}
		}
		if err == nil || !mayRepair || !isOwnerDead(err) {
			return err
		}
		if took, err := f.inherit(ctx); took || err != nil {
			return err
		}
		if err := f.mon.enter(ctx); err != nil {
			return err
		}
	}
}

// arrive takes the lock or a place in the queue, with the queue lock held, which it leaves.
// It gives the wait node to wait in, or nil with what came of it without waiting. turns is nil
// for a wait that no goroutine blocks in.
func (f *FairMutex) arrive(ctx context.Context, turns *park.Turns) (waitNode *park.WaitNode, err error) {
	m := f.mon
	b := takeWakes()
	for {
		f.lookAtOwner(b)
		free := f.free()
		if !free {
			err = f.refusal("fairmutex.lock", f.ownerWord(), f.diedName())
		}
		if free || err != nil {
			if free {
				f.take()
			}
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			return nil, err
		}
		var again bool
		if waitNode, again, err = m.waitNode(ctx, waitNode); err != nil {
			m.wake(b)
			return nil, err
		}
		if !again {
			break
		}
	}
	m.join(waitNode, 0, 0)
	if turns != nil {
		turns.Append(waitNode)
	}
	m.leave(b)
	return waitNode, nil
}

// tryLockSlow is the rest of TryLock, with the queue lock held.
func (f *FairMutex) tryLockSlow() bool {
	b := takeWakes()
	f.lookAtOwner(b)
	ok := f.free()
	if ok {
		f.take()
	}
	f.mon.leave(b)
	return ok
}

// lookAtOwner takes back what the dead have, with the queue lock held.
func (f *FairMutex) lookAtOwner(b *wakes) {
	o := f.ownerWord()
	if (o.held() || o.granted()) && f.a.Dead(o.participant()) {
		f.mon.sweep(b)
		return
	}
	f.mon.reapIfDue(b)
	if o.free() && !f.fifo.empty() {
		f.resolve(b)
	}
}

// refusal is why nobody can wait for owner word o, or nil.
func (f *FairMutex) refusal(op string, o ownerWord, died arenakernel.ParticipantID) error {
	switch {
	case !fairOwner(o):
		return f.corrupt(op, o)
	case o.kind() == kindOwnerDead:
		return f.fail(op, shmsync.ErrOwnerDead, f.a.Who(o.participant()), "")
	case o == ownerNotRecoverable:
		return f.fail(op, shmsync.ErrNotRecoverable, f.a.Who(died), "")
	}
	return nil
}

func (f *FairMutex) corrupt(op string, o ownerWord) error {
	return f.fail(op, shmsync.ErrCorrupt, nil, o.String())
}

// judge is what the end of a wait means.
func (f *FairMutex) judge(end outcome) error {
	who := arenakernel.ParticipantID(end.aux() & arenakernel.ParticipantIDMask)
	switch end.result() {
	case lockGranted:
		return nil
	case lockOwnerDead:
		return f.fail("fairmutex.lock", shmsync.ErrOwnerDead, f.a.Who(who), "")
	case lockNotRecoverable:
		return f.fail("fairmutex.lock", shmsync.ErrNotRecoverable, f.a.Who(who), "")
	}
	return f.corrupt("fairmutex.lock", f.ownerWord())
}

// resolve hands a free lock to the first in the queue, and tells all when nobody can
// have it.
func (f *FairMutex) resolve(b *wakes) {
	for w, ok := f.fifo.head(); ok; w, ok = f.fifo.head() {
		o, result, aux := f.ownerWord(), lockGranted, uint32(0)
		// Nobody may have noticed its death yet: it would have the lock, and die
		// as its holder.
		if !f.mon.waiting(w) || o.free() && f.a.Dead(w.Owner()) {
			f.detach(w)
			f.mon.releaseNode(w)
			continue
		}
		switch {
		case o.free():
		case !fairOwner(o):
			result = lockCorrupt
		case o.kind() == kindOwnerDead:
			result, aux = lockOwnerDead, uint32(o.participant())
		case o == ownerNotRecoverable:
			result, aux = lockNotRecoverable, uint32(f.diedName())
		default:
			return
		}
		if f.mon.end(b, w, result, aux) {
			f.account(w)
		}
	}
}

// account grants the lock to the process of a wait that was resolved so. The lock was
// free when the wait was resolved, so a word that is not free says that this was done:
// the waiter may have accepted the lock since.
func (f *FairMutex) account(w wait) {
	if outcome(w.Extra().Load()).result() == lockGranted && f.words.owner.Load() == 0 {
		f.mon.counts.dates()
		storeWord(&f.words.owner, uint64(makeOwner(kindReserved, w.Owner()&arenakernel.ParticipantIDMask)))
		crashpoint.Hit("fairmutex.grant.granted")
	}
	f.mon.account(w, nil)
}

// accept makes this process the holder of the lock that one of its waits was granted.
// A process that dies before this step has not held the lock.
func (f *FairMutex) accept() error {
	if f.acceptAtOnce() {
		return nil
	}
	// The granter has resolved the wait and is not through: it runs, or it is stopped
	// or dead.
	if err := f.mon.enter(nil); err != nil {
		return err
	}
	ok := f.acceptAtOnce()
	f.mon.leave(nil)
	if !ok {
		return f.corrupt("fairmutex.lock", f.ownerWord())
	}
	return nil
}

// acceptAtOnce is accept without the queue lock. The wait of one goroutine of this process
// has been granted the lock, and no other wait can be before that one unlocks.
func (f *FairMutex) acceptAtOnce() bool {
	granted := uint64(makeOwner(kindReserved, f.name))
	for range acceptTries {
		// lin: the lock is taken here.
		if f.words.owner.CompareAndSwap(granted, uint64(f.name)) {
			crashpoint.Hit("fairmutex.lock.accepted")
			return true
		}
		asm.Pause(acceptPause)
	}
	return false
}

const (
	// acceptTries bounds how often a waiter looks for the grant that follows the end
	// of its wait by a few instructions.
	acceptTries = 100
	acceptPause = 2
)

func (f *FairMutex) detach(w wait)          { f.fifo.detach(w) }
func (f *FairMutex) requeue(w wait)         { f.fifo.requeue(w) }
func (f *FairMutex) each(g func(wait) bool) { f.fifo.each(g) }
func (f *FairMutex) clear()                 { f.fifo.clear() }

// reap takes the hold of the dead back, by the policy.
func (f *FairMutex) reap(dead func(arenakernel.ParticipantID) bool) {
	o := f.ownerWord()
	switch {
	case !fairOwner(o) || !o.held() && !o.granted() || !dead(o.participant()):
		return
	case o.granted():
		storeWord(&f.words.owner, 0)
		return
	}
	next := o.ownerDied(f.policy)
	if next.free() && !f.mon.ended(o.participant()) {
		return
	}
	f.words.died.Store(uint32(o.participant()))
	storeWord(&f.words.owner, uint64(next))
	f.mon.counts.add(countRecovery)
}

func (f *FairMutex) holders(g func(arenakernel.ParticipantID)) {
	if o := f.ownerWord(); o.held() || o.granted() {
		g(o.participant())
	}
}

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
		return ^ownerWord(0) // a peer wrote the word
	}
	return ownerWord(v)
}

func (f *FairMutex) diedName() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(f.words.died.Load() & arenakernel.ParticipantIDMask)
}

// free reports whether a caller that is not queued may have the lock now. The queue lock is held.
func (f *FairMutex) free() bool { return f.words.owner.Load() == 0 && f.fifo.empty() }

// take makes this process the holder of a free lock.
func (f *FairMutex) take() {
	if c := f.mon.counts; c != nil {
		c.holds(false)
	}
	// lin: the lock is taken here.
	storeWord(&f.words.owner, uint64(f.name))
	crashpoint.Hit("fairmutex.lock.taken")
}

// lockSlow is the rest of lock. The queue lock is held. If a caller has learned of a death and
// may repair, but finds that others are repairing, it gets in the queue again.
func (f *FairMutex) lockSlow(ctx context.Context, mayRepair bool) error {
	mayRepair = mayRepair && f.repair != nil
	// Close waits for a call that may be granted the lock until that call has accepted it.
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

// arrive takes the lock or a place in the queue. The caller holds the queue lock, and arrive
// releases it. It returns the wait node to wait in, or nil and the result if there is no need to
// wait. turns is nil for a wait in which no goroutine blocks.
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

// tryLockSlow is the rest of TryLock. The queue lock is held.
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

// lookAtOwner takes back what the dead hold. The queue lock is held.
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

// refusal is the reason why nobody can wait while the owner word is o, or nil.
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

// judge turns the outcome of a wait into an error.
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

// resolve hands a free lock to the first in the queue, and ends all waits when nobody can have
// the lock.
func (f *FairMutex) resolve(b *wakes) {
	for w, ok := f.fifo.head(); ok; w, ok = f.fifo.head() {
		o, result, aux := f.ownerWord(), lockGranted, uint32(0)
		// The waiter's process may be dead although nobody has noticed yet. If it were granted
		// the lock, it would count as a holder that died.
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

// account grants the lock to the process of a wait that was resolved with a grant. The lock was
// free when the wait was resolved. So a word that is not free says that the grant is done
// already, and the waiter may even have accepted the lock.
func (f *FairMutex) account(w wait) {
	if outcome(w.Extra().Load()).result() == lockGranted && f.words.owner.Load() == 0 {
		f.mon.counts.dates()
		storeWord(&f.words.owner, uint64(makeOwner(kindReserved, w.Owner()&arenakernel.ParticipantIDMask)))
		crashpoint.Hit("fairmutex.grant.granted")
	}
	f.mon.account(w, nil)
}

// accept makes this process the holder of the lock that one of its waits was granted. A process
// that dies before this step has never held the lock.
func (f *FairMutex) accept() error {
	if f.acceptAtOnce() {
		return nil
	}
	// The granter has resolved the wait and has not finished: it is running, stopped or dead.
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

// acceptAtOnce is accept without the queue lock. It is possible because a wait of this process
// has been granted the lock, and no other wait can be granted it before this process unlocks.
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
	// acceptTries bounds how often a waiter looks for the grant in the owner word. The granter
	// writes it a few instructions after it has ended the wait.
	acceptTries = 100
	acceptPause = 2
)

func (f *FairMutex) detach(w wait)          { f.fifo.detach(w) }
func (f *FairMutex) requeue(w wait)         { f.fifo.requeue(w) }
func (f *FairMutex) each(g func(wait) bool) { f.fifo.each(g) }
func (f *FairMutex) clear()                 { f.fifo.clear() }

// reap takes back the hold of a dead participant, as the policy says.
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
	tellDied(f.a, f.object, nil, o.participant(), next.free())
}

func (f *FairMutex) holders(g func(arenakernel.ParticipantID)) {
	if o := f.ownerWord(); o.held() || o.granted() {
		g(o.participant())
	}
}

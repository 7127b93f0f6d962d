package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: fairMutexKind, Version: fairMutexVersion, Repair: repairFairMutex, Complete: completeFairMutex, Wake: wakeFirstOfFairMutex,
		Check: checkFairMutex, Inspect: inspectFairMutex,
	})
}

// bareFairMutex makes the handle of a reaper or a tool. ok is false if the object is so damaged
// that no process can open it.
func bareFairMutex(a *arenakernel.Arena, o arenakernel.Object) (f *FairMutex, ok bool) {
	if o.Size < fairMutexBytes(a) {
		return nil, false
	}
	f, err := buildFairMutex(a, o, &FairMutexOptions{}, true)
	return f, err == nil
}

// repairFairMutex takes back the lock and removes the waits of the dead participant.
func repairFairMutex(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	f, ok := bareFairMutex(a, o)
	if !ok {
		return
	}
	reap := func(x *recordedChange, b *wakes) {
		f.reap(x, b)
		f.serve(x, b)
	}
	f.repairBare(dead, reap, func(x *recordedChange, b *wakes) {
		f.reapOpen()
		v := fairWord(f.words.owner.Load())
		if !fairOpen(v) && f.absent(fairState(v).holder()) && f.slots.makeRecord() {
			reap(x, b)
		}
	})
}

// wakeFirstOfFairMutex wakes waiters for a reaper that could not do so itself, because it has not opened the
// FairMutex.
func wakeFirstOfFairMutex(a *arenakernel.Arena, o arenakernel.Object, _ arenakernel.Owed) {
	if f, ok := bareFairMutex(a, o); ok {
		f.wakeBare()
	}
}

// completeFairMutex completes the last change of the FairMutex, if the process that made the change has not
// completed it.
func completeFairMutex(a *arenakernel.Arena, o arenakernel.Object) bool {
	f, ok := bareFairMutex(a, o)
	return ok && f.completeBare()
}

// reap first takes the waits of dead participants off the queue. Then it takes the lock back from a dead
// holder, as the policy says. x has the change that reap makes, and b collects the wakes that it owes. The
// caller holds f.private.
func (f *FairMutex) reap(x *recordedChange, b *wakes) error {
	if err := f.beginReap(x, b); err != nil {
		return err
	}
	for {
		// The loop repeats only after it has taken a wait off the queue, or after another call has changed the
		// FairMutex.
		if err := f.begin(x, b); err != nil {
			return err
		}
		if !f.absent(fairState(fairWord(f.words.owner.Load())).holder()) {
			return nil
		}
		v := closeFair(&f.words.owner)
		n := fairState(v).holder()
		if !f.absent(n) {
			continue
		}
		next, held, ok := f.afterDeath(v)
		if !ok {
			f.unreaped.Store(true) // so the next reap tries again
			return nil
		}
		granted := arenakernel.ParticipantID(0)
		if !next.free() {
			f.setOwner(x, next)
			f.setDied(x, n)
		} else if granted, ok = f.passOn(x); !ok {
			if err := f.dropFirst(x, b); err != nil {
				return err
			}
			continue
		}
		ok, err := f.commitFair(x, b)
		if x.made {
			f.handedOn(granted)
			if held {
				f.tellDeath(n, next)
			}
		}
		if ok || err != nil {
			return err
		}
	}
}

// afterDeath returns the state that the lock has after its dead holder is reaped. v is the owner word, which is
// closed: fast paths can no longer change it. held is false if the holder was granted the lock but did not
// accept it, so that it never held the lock. ok is false if the lock would become free although the holder is
// not gone: a system call of the holder may still write to the data that the lock guards.
//
// The holder is not a current participant any more. So none of its threads can still accept the lock: see
// [arenakernel.Arena.Current].
func (f *FairMutex) afterDeath(v fairWord) (next ownerWord, held, ok bool) {
	o := f.stateOf(v)
	if o.granted() {
		return ownerFree, false, true
	}
	next = o.ownerDied(f.policy)
	return next, true, !next.free() || f.a.Gone(o.participant())
}

// tellDeath counts and reports the death of a holder. Only the process that has taken the lock from the holder
// calls tellDeath.
func (f *FairMutex) tellDeath(n arenakernel.ParticipantID, next ownerWord) {
	f.counts.add(countRecovery)
	tellDied(f.a, f.object, nil, n, next.free())
}

// reapOpen takes the lock back from a dead holder if the owner word is open, that is, if fast paths may change
// it. One compare-and-swap is enough then, because no wait is queued while the word is open.
func (f *FairMutex) reapOpen() {
	v := fairWord(f.words.owner.Load())
	n := fairState(v).holder()
	if !fairOpen(v) || !f.absent(n) {
		return
	}
	next, take := fairState(v).ownerDied(f.policy), arenakernel.TakeFromDead[uint64]
	if next.free() {
		take = arenakernel.TakeFromGone
	}
	if take(f.a, n, &f.words.owner, uint64(v), uint64(v.with(uint32(fairOpened(next))))) {
		f.tellDeath(n, next)
	}
}

// check is called ten times a second while a goroutine of this process waits. It completes the changes that a
// dead or a stopped process has left undone. It also stores the time in the first wait of the queue; see
// dateFirst.
func (f *FairMutex) check() {
	n := fairState(fairWord(f.words.owner.Load())).holder()
	// The process that marked the holder dead may have been stopped before it counted the death. So it is not
	// enough to compare the count of deaths.
	dead := n != 0 && f.a.Dead(n)
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x := &f.scratch
	if dead || f.reapDue() {
		f.reap(x, b)
	}
	f.serve(x, b)
	f.dateFirst()
}

func checkFairMutex(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < fairMutexBytes(a) {
		return wrongKind("fairmutex.check", o, fairMutexKind, fairMutexVersion)
	}
	f, err := buildFairMutex(a, o, &FairMutexOptions{}, true)
	if err != nil {
		return err
	}
	if w := fairState(fairWord(f.words.owner.Load())); !w.valid() || f.words.policy&policyMask > 1 {
		return f.fail("fairmutex.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("owner word %v, policy %d", w, f.words.policy))
	}
	return nil
}

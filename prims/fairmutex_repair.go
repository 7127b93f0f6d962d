package prims

import (
	"context"
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("fairmutex.recover.taken")
	_ = crashpoint.Register("fairmutex.recover.repaired")
)

// Recover makes f usable again after it became owner-dead or not recoverable. It takes the lock, runs repair, and
// releases the lock. If repair returns an error or panics, f becomes not recoverable until a later Recover
// succeeds, and this Recover returns the error. Other callers wait while repair runs. If this process dies before
// repair returns, f is owner-dead again. When Recover calls repair, no system call of the dead process can write to
// the data of the lock any more.
//
// If f is neither owner-dead nor not recoverable, Recover waits for the lock, releases it and does not run repair.
// Recover returns the errors of LockContext except ErrOwnerDead. If repair is nil, Recover panics and leaves the
// lock as it is.
func (f *FairMutex) Recover(repair func() error) error {
	return f.RecoverContext(context.Background(), repair)
}

// RecoverContext is like Recover, but returns ctx.Err() if ctx ends while it waits. If RecoverContext need not
// wait, it calls repair even though ctx has ended.
func (f *FairMutex) RecoverContext(ctx context.Context, repair func() error) error {
	mustHaveRepair(repair != nil, "fair mutex "+objectName(f.object))
	// stayToRun keeps the object open until the result of the repair is stored in the words of the object. Close of
	// the handle does not wait until then, because a repair may take long. Close of the arena waits.
	if !f.opening.stayToRun() {
		return f.closedError()
	}
	defer f.opening.leaveStay(f.queue)
	for {
		if took, err := f.beginRecover(ctx, true); err != nil {
			return err
		} else if took {
			return f.runRepair(repair, false)
		}
		switch err := f.lockSlow(ctx, false); {
		case err == nil:
			f.Unlock()
			return nil
		case !isOwnerDead(err) && !errors.Is(err, shmsync.ErrNotRecoverable):
			return err
		}
	}
}

// inherit takes an owner-dead lock and runs the Repair of this process's options. It reports whether this
// process holds the lock now.
func (f *FairMutex) inherit(ctx context.Context) (took bool, err error) {
	if took, err = f.beginRecover(ctx, false); took {
		err = f.runRepair(f.repair, true)
	}
	return took && err == nil, err
}

// beginRecover marks an owner-dead lock as being recovered by this process. If the parameter ruined is true, it does
// the same with a lock that is not recoverable. First it waits until the dead owner is gone, that is, until no system
// call of the dead process can write any more.
func (f *FairMutex) beginRecover(ctx context.Context, ruined bool) (took bool, err error) {
	for {
		// The loop repeats only after a wait for the end of the dead process, or after another call has changed
		// the lock.
		died, took, err := f.takeToRecover(ruined)
		if died == 0 || err != nil {
			return took, err
		}
		dead := makeOwner(kindOwnerDead, died)
		if err := awaitGone(ctx, f.a, f.queue, died, func() bool { return f.state() == dead }); err == errClosing {
			return false, f.closedError()
		} else if err != nil {
			return false, err
		}
	}
}

// takeToRecover does what beginRecover does, but does not wait. If the dead owner is not gone, the first result is
// the ID of that owner, and the lock is not marked.
func (f *FairMutex) takeToRecover(ruined bool) (died arenakernel.ParticipantID, took bool, err error) {
	if !f.queue.EnterStay() {
		return 0, false, f.closedError()
	}
	defer f.queue.ExitLasting()
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x := &f.scratch
	for {
		// The loop repeats only if another call has changed the FairMutex. So the loop is lock-free.
		if err := f.begin(x, b); err != nil {
			return 0, false, err
		}
		o, n := ownerState(fairWord(f.words.owner.Load())), arenakernel.ParticipantID(0)
		switch {
		case o.valid() && o.kind() == kindOwnerDead:
			if n = o.participant(); !f.a.Gone(n) {
				return n, false, nil
			}
			// A reaper that marks an open owner word does not store n in f.words.died.
			f.setDied(x, n)
			fallthrough
		case ruined && o == ownerNotRecoverable:
			f.setOwner(x, makeOwner(kindRecovering, f.name))
		}
		took := x.n > 0
		switch ok, err := f.commitLock(x, b); {
		case err != nil:
			return 0, false, err
		case !ok:
		default:
			if took {
				race.Acquire(f.key)
				crashpoint.Hit("fairmutex.recover.taken")
			}
			return 0, took, nil
		}
	}
}

// runRepair runs repair while this process recovers f. After a successful repair, this process holds f if the
// parameter hold is true; otherwise f is free. If repair fails, f becomes not recoverable. If hold is true, Close of
// the handle waits for this call.
func (f *FairMutex) runRepair(repair func() error, hold bool) (err error) {
	next, kind, died := ownerNotRecoverable, arenakernel.EventNotRecoverable, f.diedName()
	defer func() {
		e := f.endRecover(next)
		if e == nil {
			f.a.Happened(kind, f.object, nil, died, err)
		}
		if err == nil {
			err = e
		}
	}()
	defer f.opening.repairing(nil, hold).end()
	if err := repair(); err != nil {
		return f.fail("fairmutex.recover", shmsync.ErrNotRecoverable, f.a.Who(f.diedName()), "the repair failed: "+err.Error())
	}
	crashpoint.Hit("fairmutex.recover.repaired")
	kind = arenakernel.EventRepaired
	if next = ownerFree; hold {
		next = makeOwner(kindHeld, f.name)
	}
	return nil
}

// endRecover ends the recovery by this process. The parameter next is the new state of the lock.
func (f *FairMutex) endRecover(next ownerWord) error {
	if !f.queue.EnterStay() {
		return f.closedError()
	}
	defer f.queue.ExitLasting()
	if err := f.commitRecover(next); err != nil {
		return err
	}
	f.turns.HoldEnded()
	return nil
}

func (f *FairMutex) commitRecover(next ownerWord) error {
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
			return err
		}
		if o := f.ownerIn(x); o != makeOwner(kindRecovering, f.name) {
			if f.load() != x.c {
				continue
			}
			return f.refusedCorrupt("fairmutex.recover", o)
		}
		if next != ownerNotRecoverable {
			f.setDied(x, 0)
		}
		switch done, err := f.settle(x, b, next); {
		case err != nil:
			return err
		case done:
			f.serve(x, b) // an error here concerns the waits, not this call
			return nil
		}
	}
}

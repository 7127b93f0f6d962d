package prims

import (
	"context"
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("fairmutex.recover.taken")
	_ = crashpoint.Register("fairmutex.recover.repaired")
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: fairMutexKind, Version: fairMutexVersion, Repair: repairFairMutex, Wake: wakeQueue, Check: checkFairMutex, Inspect: inspectFairMutex,
	})
}

func isOwnerDead(err error) bool { return errors.Is(err, shmsync.ErrOwnerDead) }

// Recover makes an owner-dead or not recoverable f usable again: it takes the lock, runs repair,
// and releases the lock. If repair returns an error or panics, f becomes not recoverable until a
// later Recover succeeds, and Recover returns the error. Other callers wait while repair runs. If
// this process dies before repair returns, f is owner-dead again. When repair is called, no
// system call of the dead process can still write to its data.
//
// If the lock is healthy, Recover waits for it, releases it and does not run repair. Its own
// errors are those of LockContext except ErrOwnerDead. It panics if repair is nil, and leaves the
// lock as it is.
func (f *FairMutex) Recover(repair func() error) error {
	return f.RecoverContext(context.Background(), repair)
}

// RecoverContext is Recover that ends with ctx.Err() when ctx ends before repair is called.
func (f *FairMutex) RecoverContext(ctx context.Context, repair func() error) error {
	mustHaveRepair(repair != nil, "fair mutex "+objectName(f.object))
	// The words stay in place until the end of the repair is recorded there. Close does not wait
	// for that.
	if !f.mon.opening.stayIfOpen() {
		return f.mon.closed()
	}
	defer f.mon.leaveStay()
	for {
		if took, err := f.beginRecover(ctx, true); err != nil {
			return err
		} else if took {
			return f.runRepair(repair, false)
		}
		if err := f.mon.enter(ctx); err != nil {
			return err
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

// inherit takes an owner-dead lock and runs the Repair of this process's options.
func (f *FairMutex) inherit(ctx context.Context) (took bool, err error) {
	if took, err = f.beginRecover(ctx, false); took {
		err = f.runRepair(f.repair, true)
	}
	return took && err == nil, err
}

// beginRecover marks the lock as being recovered by this process, if it is owner-dead or, with
// ruined set, not recoverable. It waits until the dead owner is gone.
func (f *FairMutex) beginRecover(ctx context.Context, ruined bool) (took bool, err error) {
	if err := f.mon.enter(ctx); err != nil {
		return false, err
	}
	o := f.ownerWord()
	for o.kind() == kindOwnerDead && o.valid() && !f.a.Gone(o.participant()) {
		f.mon.leave(nil)
		if err := f.mon.awaitGone(ctx, o.participant(), func() bool { return f.ownerWord() == o }); err != nil {
			return false, err
		}
		if err := f.mon.enter(ctx); err != nil {
			return false, err
		}
		o = f.ownerWord()
	}
	if o.kind() == kindOwnerDead && o.valid() || ruined && o == ownerNotRecoverable {
		storeWord(&f.words.owner, uint64(makeOwner(kindRecovering, f.name)))
		crashpoint.Hit("fairmutex.recover.taken")
		took = true
	}
	f.mon.leave(nil)
	return took, nil
}

// runRepair runs repair while this process recovers f. Afterwards this process holds f if hold is
// set, and otherwise f is free. If repair fails, f becomes not recoverable.
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

// endRecover sets the owner word of a lock that this process recovers to next.
func (f *FairMutex) endRecover(next ownerWord) error {
	m := f.mon
	if err := m.enter(nil); err != nil {
		return err
	}
	o := f.ownerWord()
	if o != makeOwner(kindRecovering, f.name) {
		m.leave(nil)
		return f.corrupt("fairmutex.recover", o)
	}
	if next != ownerNotRecoverable {
		f.words.died.Store(0)
	}
	storeWord(&f.words.owner, uint64(next))
	b := takeWakes()
	f.resolve(b)
	m.leave(b)
	f.turns.HoldEnded()
	return nil
}

func repairFairMutex(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= uint64(fairMutexBytes) {
		repairMonitor(buildFairMutex(a, o, &FairMutexOptions{}, true).mon, dead)
	}
}

func checkFairMutex(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < uint64(fairMutexBytes) {
		return wrongKind("fairmutex.check", o, fairMutexKind, fairMutexVersion)
	}
	f := buildFairMutex(a, o, &FairMutexOptions{}, true)
	if err := checkMutexWords(o, &f.words.mon.queueLock); err != nil {
		return err
	}
	if w := f.ownerWord(); !fairOwner(w) || f.words.policy&policyMask > 1 {
		return f.fail("fairmutex.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("owner word %v, policy %d", w, f.words.policy))
	}
	return nil
}

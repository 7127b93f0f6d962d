package prims

import (
	"context"
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("spinlock.owner_dead.marked")
	_ = crashpoint.Register("spinlock.recover.taken")
	_ = crashpoint.Register("spinlock.recover.repaired")
	_ = crashpoint.Register("spinlock.recover.lost")
	_ = crashpoint.Register("spinlock.recover.before_wake")
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: spinKindID, Version: spinVersion, Repair: alone(repairSpin), Wake: wakeSpin, Check: checkSpin, Inspect: inspectSpin,
	})
}

// markOwnerDeadSpin changes the state word o, whose holder was found dead. It returns false if nobody may change the
// word yet: the next holder must not use the data before the process of the dead holder has ended.
func markOwnerDeadSpin(a *arenakernel.Arena, obj arenakernel.Object, w *spinWords, o spinWord, readers bool) (changed bool) {
	next := o.ownerDied(policyOf(w.policy))
	if next == o || next.free() && o.kind() != spinDraining && !a.Gone(o.participant()) {
		return false
	}
	take := arenakernel.TakeFromDead[uint32]
	if next.free() && o.kind() != spinDraining {
		take = arenakernel.TakeFromGone
	}
	// sync(spinlock.release): release
	if !take(a, o.participant(), &w.state, uint32(o), uint32(next)) {
		return true
	}
	crashpoint.Hit("spinlock.owner_dead.marked")
	if next.kind() == spinOwnerDead {
		wakeSpinWaiters(a, w, arenakernel.OwedAll, readers)
	} else {
		wakeSpinWaiters(a, w, arenakernel.OwedOne, readers)
	}
	if o.kind() != spinDraining {
		tellDied(a, obj, nil, o.participant(), next.free())
	}
	return true
}

// wakeSpinWaiters wakes waiters, even if the wake words announce none. It wakes all readers if the lock has readers,
// and one or all of the waiters for other holds.
func wakeSpinWaiters(a *arenakernel.Arena, w *spinWords, owed arenakernel.Owed, readers bool) {
	if readers {
		gate := rwSpinGate(a, w)
		gate.WakeAll()
	}
	next := spinWakeWord(a, w)
	if owed == arenakernel.OwedAll {
		next.WakeAll()
	} else {
		next.WakeOne()
	}
}

func repairSpin(a *arenakernel.Arena, obj arenakernel.Object, dead arenakernel.ParticipantID) {
	repairSpinWord(a, obj, dead, false)
}

// repairSpinWord ends the hold of the participant named dead, if the state word names that participant.
func repairSpinWord(a *arenakernel.Arena, obj arenakernel.Object, dead arenakernel.ParticipantID, readers bool) {
	w, err := arenakernel.TryAt[spinWords](a, obj.Body)
	if err != nil {
		return
	}
	for range reapTries {
		o := spinWord(w.state.Load())
		if !a.Reaps(dead, o.participant()) || !o.held() {
			return
		}
		if !markOwnerDeadSpin(a, obj, w, o, readers) {
			return
		}
	}
}

// wakeSpin makes the wakes that a dead process may not have made.
func wakeSpin(a *arenakernel.Arena, obj arenakernel.Object, owed arenakernel.Owed) {
	w, err := arenakernel.TryAt[spinWords](a, obj.Body)
	if err != nil {
		return
	}
	wakeOwed(spinWakeWord(a, w), owedBySpin(w, owed, false))
}

// owedBySpin returns OwedAll if no waiter gets the lock, because the dead process may then have been about to wake all
// waiters; see wakeMutex. Otherwise it returns owed.
func owedBySpin(w *spinWords, owed arenakernel.Owed, readers bool) arenakernel.Owed {
	if spinWord(w.state.Load()).endsWaits(readers) {
		return arenakernel.OwedAll
	}
	return owed
}

func wakeOwed(b park.WakeWord, owed arenakernel.Owed) {
	switch {
	case owed == arenakernel.OwedAll:
		b.WakeAll()
	case owed == arenakernel.OwedOne || b.Announced():
		b.WakeOne()
	}
}

func checkSpin(a *arenakernel.Arena, obj arenakernel.Object) error {
	return checkSpinWords(a, obj, "spinlock.check", false)
}

func checkSpinWords(a *arenakernel.Arena, obj arenakernel.Object, op string, readers bool) error {
	w, err := arenakernel.TryAt[spinWords](a, obj.Body)
	if err != nil {
		return err
	}
	o := spinWord(w.state.Load())
	if !o.valid(readers) || w.policy&policyMask > 1 {
		return &shmsync.Error{Op: op, Object: objectName(obj), Err: shmsync.ErrCorrupt,
			Detail: fmt.Sprintf("state word %v (%#08x), policy %d", o, uint32(o), w.policy)}
	}
	return nil
}

// check is the periodic check of the waiters for an exclusive hold.
func (c *spinCore) check() { c.checkFor(&c.next) }

// checkFor is called ten times a second while a goroutine of this process waits. The parameter waiters is the wait list
// of that goroutine. A process may have stopped or died before it woke waiters; then checkFor wakes them. If the state
// word names a dead process, checkFor changes the word.
func (c *spinCore) checkFor(waiters *park.WakeWord) {
	o, readers := spinWord(c.state.Load()), c.rw != nil
	switch {
	case o.free():
		wakeSpinWaiters(c.a, c.words, arenakernel.OwedOne, readers)
	case o.endsWaits(readers):
		wakeSpinWaiters(c.a, c.words, arenakernel.OwedAll, readers)
	case c.a.Dead(o.participant()):
		markOwnerDeadSpin(c.a, c.object, c.words, o, readers)
	default:
		// The process that released the lock last may have been stopped before it woke a waiter. Or the waiter that
		// was woken last may have been stopped before it announced the other waiters again. So announce them here.
		waiters.Announce()
		c.meetAgain()
	}
}

// meetAgain stores the present time as the date of the present hold; see metWords. A date counts only while the state
// word is unchanged. If the holder has waited for readers, it changed the state word after that, so earlier dates of
// the hold are void.
func (c *spinCore) meetAgain() {
	next, gate := c.words.wake.Load(), c.words.gate.Load()
	o := spinWord(c.state.Load())
	if !o.held() {
		return
	}
	if park.Word(next).Announced() {
		c.words.met.meet(uint32(o), next)
	}
	if park.Word(gate).Announced() {
		c.words.gateMet.meet(uint32(o), gate)
	}
}

// recoverCounted does what Recover of a SpinLock and of an RWSpinLock does.
func (c *spinCore) recoverCounted(ctx context.Context, repair func() error) error {
	if !c.opening.stayToRun() {
		return c.opening.refused(c.op + ".recover")
	}
	defer c.opening.leaveStay(c.queue)
	return c.recover(ctx, repair, false)
}

// recover does what the method recoverCounted does, for a call that Close of the arena waits for. The parameter waited
// says whether the Close of the handle waits for the call, too.
func (c *spinCore) recover(ctx context.Context, repair func() error, waited bool) error {
	op := c.op + ".recover"
	for {
		o := spinWord(c.state.Load())
		if o.kind() != spinOwnerDead && o != spinLost {
			switch err := c.passThrough(ctx); {
			case err == nil:
				return nil
			case errors.Is(err, shmsync.ErrOwnerDead), errors.Is(err, shmsync.ErrNotRecoverable):
				continue
			default:
				return err
			}
		}
		if o.kind() == spinOwnerDead && !c.a.Gone(o.participant()) {
			switch err := awaitGone(ctx, c.a, c.queue, o.participant(), func() bool { return spinWord(c.state.Load()) == o }); err {
			case nil:
				continue // another process may be recovering the lock by now
			case errClosing:
				return c.closed()
			default:
				return err
			}
		}
		mine := makeSpin(spinRecovering, c.name)
		if !arenakernel.TakeFromGone(c.a, o.participant(), c.state, uint32(o), uint32(mine)) {
			continue
		}
		crashpoint.Hit("spinlock.recover.taken")
		if n := o.participant(); n != 0 {
			// The word died is for reports. Only a process that has the lock stores it; see Mutex.taken.
			c.words.died.Store(uint32(n))
		}
		if c.rw != nil {
			if err := c.rw.drain(ctx, drainForRecover(c.name, o)); err != nil {
				return err
			}
			race.Acquire(c.rw.readKey)
		}
		race.Acquire(c.key)
		if err := c.runRepair(repair, waited); err != nil {
			return err
		}
		died := c.diedName()
		race.ReleaseMerge(c.key)
		if o := spinWord(c.state.Load()); o != mine {
			return c.recoveryLost(op, o)
		}
		c.words.died.Store(0)
		// sync(spinlock.release): release
		if !c.state.CompareAndSwap(uint32(mine), 0) {
			return c.recoveryLost(op, spinWord(c.state.Load()))
		}
		c.a.Happened(arenakernel.EventRepaired, c.object, nil, died, nil)
		crashpoint.Hit("spinlock.recover.before_wake")
		if c.waited() {
			c.passOn()
		}
		return nil
	}
}

// recoveryLost returns the error of a Recover that has lost the lock: after the repair, the state word is o, and not
// the value that this process stored.
func (c *spinCore) recoveryLost(op string, o spinWord) error {
	if err := c.opening.lostWords(op); err != nil {
		return err
	}
	return c.fail("recover", shmsync.ErrCorrupt, nil, overwritten(o))
}

// passThrough takes a healthy lock and releases it. It does not run the Repair of the options, because the
// caller of Recover has passed its own repair.
func (c *spinCore) passThrough(ctx context.Context) error {
	err := c.own(ctx, false)
	if err == nil {
		c.acquired()
		c.unlock()
	}
	return err
}

// runRepair runs repair while this process recovers the lock. If repair fails, the lock becomes
// not recoverable. The parameter waited says whether the Close of the handle waits for the call.
func (c *spinCore) runRepair(repair func() error, waited bool) (err error) {
	who := c.diedName() // read now: the word died stays the same while this process recovers the lock
	done := false
	defer func() {
		if done && err == nil {
			return
		}
		race.ReleaseMerge(c.key)
		lost := c.state.CompareAndSwap(uint32(makeSpin(spinRecovering, c.name)), uint32(spinLost))
		crashpoint.Hit("spinlock.recover.lost")
		wakeSpinWaiters(c.a, c.words, arenakernel.OwedAll, c.rw != nil)
		if lost {
			c.a.Happened(arenakernel.EventNotRecoverable, c.object, nil, who, err)
		}
	}()
	defer c.opening.repairing(nil, waited).end()
	if err = repair(); err != nil {
		err = &shmsync.Error{Op: c.op + ".recover", Object: objectName(c.object), Err: shmsync.ErrNotRecoverable,
			Who: c.a.Who(who), Detail: "the repair failed: " + err.Error()}
	}
	done = true
	crashpoint.Hit("spinlock.recover.repaired")
	return err
}

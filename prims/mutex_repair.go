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
	_ = crashpoint.Register("mutex.owner_dead.marked")
	_ = crashpoint.Register("mutex.recover.taken")
	_ = crashpoint.Register("mutex.recover.repaired")
	_ = crashpoint.Register("mutex.recover.lost")
	_ = crashpoint.Register("mutex.recover.before_wake")
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: mutexKind, Version: mutexVersion, Repair: alone(repairMutex), Wake: wakeMutex, Check: checkMutex, Inspect: inspectMutex, UserData: mutexUserData,
	})
}

// markOwnerDead changes the owner word o, which names a dead participant, as the policy says. If the lock would
// become free, but a system call of the dead participant may still store data, markOwnerDead leaves the word as it is
// and returns false.
//
// If the Mutex has an undo log, markOwnerDead rolls back the transaction of the dead participant. Close of the arena
// waits for this rollback. Otherwise Close would roll back the same transaction, and two rollbacks must not copy old
// bytes at the same time. If this process is already leaving the arena, markOwnerDead returns ErrClosed.
func (m *Mutex) markOwnerDead(o ownerWord) (changed bool, err error) {
	if m.log == nil || !o.held() {
		return markOwnerDeadMutex(m.a, m.object, m.words, o, m.internal), nil
	}
	s, ok := m.opening.tryServe(m.queue)
	if !ok {
		return false, m.closed()
	}
	defer s.end()
	return rollBackMutex(m.a, m.object, m.words, m.log, o), nil
}

// markOwnerDeadMutex does the work of markOwnerDead for the words w. If internal is true, the mutex guards no user
// data.
func markOwnerDeadMutex(a *arenakernel.Arena, obj arenakernel.Object, w *mutexWords, o ownerWord, internal bool) (changed bool) {
	next := o.ownerDied(policyOf(w.policy))
	if next == o || !internal && next.free() && o.held() && !a.Gone(o.participant()) {
		return false
	}
	take := arenakernel.TakeFromDead[uint32]
	if !internal && next.free() && o.held() {
		take = arenakernel.TakeFromGone
	}
	// sync(mutex.release): release
	if !take(a, o.participant(), &w.owner, uint32(o), uint32(next)) {
		return true
	}
	crashpoint.Hit("mutex.owner_dead.marked")
	if o.held() {
		countsOf(a, &w.counts).add(countRecovery)
	}
	if next.kind() == kindOwnerDead {
		wakeAllOf(a, w)
	} else {
		wakeOneOf(a, w)
	}
	if !internal && o.held() {
		tellDied(a, obj, nil, o.participant(), next.free())
	}
	return true
}

// wakeOneOf wakes one waiter of the mutex with the words w, even if no waiter is announced.
func wakeOneOf(a *arenakernel.Arena, w *mutexWords) {
	b := mutexWakeWord(a, w)
	b.WakeOne()
}

func wakeAllOf(a *arenakernel.Arena, w *mutexWords) {
	b := mutexWakeWord(a, w)
	b.WakeAll()
}

// repairMutex releases the Mutex obj, or marks it as owner-dead, if the dead participant holds it.
func repairMutex(a *arenakernel.Arena, obj arenakernel.Object, dead arenakernel.ParticipantID) {
	w, err := arenakernel.TryAt[mutexWords](a, obj.Body)
	if err != nil {
		return
	}
	l, err := mutexLog(a, obj, w)
	if err != nil {
		return // no process can open the damaged object, so no process needs the lock
	}
	repairLoggedMutex(a, obj, w, l, dead, false)
}

// repairMutexWords takes back what the dead participant holds of a Mutex without an undo log. The words w of the
// Mutex are in the body of obj.
func repairMutexWords(a *arenakernel.Arena, obj arenakernel.Object, w *mutexWords, dead arenakernel.ParticipantID, internal bool) {
	repairLoggedMutex(a, obj, w, nil, dead, internal)
}

// repairLoggedMutex does what the function repairMutexWords does, for a Mutex with the undo log l. If l is nil, the
// Mutex has no log. repairLoggedMutex ignores the policy word, because a peer may have overwritten it.
func repairLoggedMutex(a *arenakernel.Arena, obj arenakernel.Object, w *mutexWords, l *undoLog, dead arenakernel.ParticipantID, internal bool) {
	if s := w.starving.Load(); a.Reaps(dead, arenakernel.ParticipantID(s&arenakernel.ParticipantIDMask)) {
		w.starving.CompareAndSwap(s, 0)
	}
	for range reapTries {
		o := ownerWord(w.owner.Load())
		if !a.Reaps(dead, o.participant()) || !o.held() && o.kind() != kindReserved {
			return
		}
		changed := false
		if l != nil && o.held() {
			changed = rollBackMutex(a, obj, w, l, o)
		} else {
			changed = markOwnerDeadMutex(a, obj, w, o, internal)
		}
		if !changed {
			return
		}
	}
}

// wakeMutex makes the wakes that a dead process did not make. owed says what the arena knows about the waiters. If
// owed is OwedAnnounced, wakeMutex makes a wake only if the wake word announces a waiter. If the lock is in a state in
// which no waiter gets it, the dead process may have been about to wake all waiters, so wakeMutex wakes all of them. One
// wake would not be enough: the woken waiter passes the wake on, but may be stopped before it does so.
func wakeMutex(a *arenakernel.Arena, obj arenakernel.Object, owed arenakernel.Owed) {
	if w, err := arenakernel.TryAt[mutexWords](a, obj.Body); err == nil {
		wakeMutexWords(a, w, owed)
	}
}

func wakeMutexWords(a *arenakernel.Arena, w *mutexWords, owed arenakernel.Owed) {
	if o := ownerWord(w.owner.Load()); o.kind() == kindReserved {
		// The dead process may have reserved the lock for a waiter that had given up. A reservation is not a hold,
		// so any process may undo it.
		w.owner.CompareAndSwap(uint32(o), 0)
		owed = max(owed, arenakernel.OwedOne)
	} else if o.endsWaits() {
		owed = arenakernel.OwedAll
	}
	switch b := mutexWakeWord(a, w); {
	case owed == arenakernel.OwedAll:
		b.WakeAll()
	case owed == arenakernel.OwedOne || b.Announced():
		b.WakeOne()
	}
}

func checkMutex(a *arenakernel.Arena, obj arenakernel.Object) error {
	w, err := arenakernel.TryAt[mutexWords](a, obj.Body)
	if err != nil {
		return err
	}
	l, err := mutexLog(a, obj, w)
	if err != nil {
		return err
	}
	if l != nil {
		return checkLocked(obj, w, l)
	}
	return checkMutexWords(obj, w)
}

// checkLocked does what the function checkMutexWords does, for a Mutex that may have an undo log.
func checkLocked(obj arenakernel.Object, w *mutexWords, l *undoLog) error {
	before := ownerWord(w.owner.Load())
	s, after := l.state(), ownerWord(w.owner.Load())
	switch {
	case !before.valid() || w.policy != PolicyRollback.stored():
	case before != after, before == ownerNotRecoverable, before.free() && s == 0, !before.free() && (s.valid(l.size) || s == logStateLost):
		return nil
	}
	return &shmsync.Error{Op: "mutex.check", Object: objectName(obj), Err: shmsync.ErrCorrupt,
		Detail: fmt.Sprintf("owner word %v, policy %d, undo log %v", before, w.policy, s)}
}

// mutexUserData calls the function hide for the part of the undo log that has saved user data, so that a dump does
// not show that data.
func mutexUserData(a *arenakernel.Arena, o arenakernel.Object, hide func(from arenakernel.Offset, n uint64)) {
	if first := uint64(mutexBytes) + logHeadBytes; o.Size > first {
		hide(arenakernel.Offset(first), o.Size-first)
	}
}

func checkMutexWords(obj arenakernel.Object, w *mutexWords) error {
	o := ownerWord(w.owner.Load())
	if !o.valid() || w.policy&policyMask > 1 {
		return &shmsync.Error{Op: "mutex.check", Object: objectName(obj), Err: shmsync.ErrCorrupt,
			Detail: fmt.Sprintf("owner word %v, policy %d", o, w.policy)}
	}
	return nil
}

// check is called ten times a second while a goroutine of this process waits. It does what another process has left
// undone because that process was stopped or died. It wakes waiters, marks the lock of a dead holder as owner-dead,
// undoes an old reservation, or announces the waiters again.
func (m *Mutex) check() {
	o := ownerWord(m.owner.Load())
	switch {
	case o.free():
		wakeOneOf(m.a, m.words)
	case o.endsWaits():
		wakeAllOf(m.a, m.words)
	case m.a.Dead(o.participant()):
		// Without Enter, the opening might end in markOwnerDead; see tryServe. The end of the opening would wait for a
		// lock that the caller of check holds.
		if m.queue.Enter() {
			m.markOwnerDead(o)
			m.queue.Exit()
		}
	case o.kind() == kindReserved:
		if m.reserved.Swap(uint32(o)) == uint32(o) && m.owner.CompareAndSwap(uint32(o), 0) {
			// The previous check found the same reservation, so the process with the reservation may be stopped. That
			// process loses nothing, because a reservation is not a hold.
			wakeOneOf(m.a, m.words)
		}
		return
	default:
		// The waiter that was woken last has cleared the announcement of the other waiters. It may have been
		// stopped before it announced them again. So this call announces them.
		m.wakeWord.Announce()
	}
	m.reserved.Store(0)
}

// repair runs the function Repair of this process's options if the word o says that the lock is owner-dead. took is
// true if this waiter now has the lock. If took is false and err is nil, the caller reads the owner word again.
func (w *waiter) repair(o ownerWord) (took bool, err error) {
	ended := false
	defer func() {
		if !ended { // Repair has panicked or ended the goroutine
			w.leave()
		}
	}()
	took, err = w.m.inherit(o)
	ended = true
	if took {
		w.took()
	}
	return took, err
}

// inherit takes m and runs the function Repair of this process's options, if the word o says that m is owner-dead.
func (m *Mutex) inherit(o ownerWord) (took bool, err error) {
	recovering := makeOwner(kindRecovering, m.name)
	if o.kind() != kindOwnerDead || !m.mayTake(o) || !m.takeFrom(o, recovering) {
		return false, nil
	}
	m.taken(o)
	if err := m.runRepair(m.repair, true); err != nil {
		return false, err
	}
	if err := m.repaired(uint32(m.name)); err != nil {
		return false, err
	}
	return true, nil
}

// Recover makes m usable again after it became owner-dead or not recoverable. It waits until the dead process can
// write nothing any more, not even by a system call. Then it takes the lock, runs repair, and releases the lock. If
// repair returns an error or panics, m becomes not recoverable until a later Recover succeeds, and this Recover
// returns the error. Other callers wait while repair runs. If this process dies before repair returns, m becomes
// owner-dead again, or not recoverable if m has PolicyRollback.
//
// If m is neither owner-dead nor not recoverable, Recover waits for the lock, releases it and does not run repair.
// Recover returns the errors of LockContext except ErrOwnerDead. If repair is nil, Recover panics and leaves the
// lock as it is.
func (m *Mutex) Recover(repair func() error) error {
	return m.RecoverContext(context.Background(), repair)
}

// RecoverContext is like Recover, but returns ctx.Err() if ctx ends while it waits. If it need not wait, it ignores
// ctx.
func (m *Mutex) RecoverContext(ctx context.Context, repair func() error) error {
	mustHaveRepair(repair != nil, m.named("mutex "))
	if !m.opening.stayToRun() {
		return m.opening.refused("mutex.recover")
	}
	defer m.opening.leaveStay(m.queue)
	for {
		o := ownerWord(m.owner.Load())
		if o.kind() != kindOwnerDead && o != ownerNotRecoverable {
			switch err := m.passThrough(ctx); {
			case err == nil:
				return nil
			case errors.Is(err, shmsync.ErrOwnerDead), errors.Is(err, shmsync.ErrNotRecoverable):
				continue
			default:
				return err
			}
		}
		if !m.mayTake(o) {
			switch err := awaitGone(ctx, m.a, m.queue, o.participant(), func() bool { return ownerWord(m.owner.Load()) == o }); err {
			case nil:
				continue // another process may be recovering the lock, so read its word again
			case errClosing:
				return m.closed()
			default:
				return err
			}
		}
		if !m.takeFrom(o, makeOwner(kindRecovering, m.name)) {
			continue
		}
		m.taken(o)
		if err := m.runRepair(repair, false); err != nil {
			return err
		}
		race.ReleaseMerge(m.key)
		if err := m.repaired(0); err != nil {
			return err
		}
		crashpoint.Hit("mutex.recover.before_wake")
		m.wakeNext()
		return nil
	}
}

// taken is called when this process has taken m for a recovery. o is the earlier owner word. If o names the dead
// participant, taken stores the ID of that participant in mutexWords.died, because the new owner word does not have the
// ID.
//
// Only a process that has m may store the ID. Otherwise a process that has merely found the death could be stopped
// before its store, and later overwrite the ID of a participant that died after that.
func (m *Mutex) taken(o ownerWord) {
	crashpoint.Hit("mutex.recover.taken")
	if n := o.participant(); n != 0 {
		m.words.died.Store(uint32(n))
	}
	if m.log != nil {
		m.log.lose()
	}
	m.counts.dates()
	race.Acquire(m.key)
}

// repaired ends a repair that succeeded, by changing the owner word to next. If the word no longer says that this
// process recovers m, repaired returns an error, because another process may have repaired m, too, or may be using it.
func (m *Mutex) repaired(next uint32) error {
	recovering := makeOwner(kindRecovering, m.name)
	if o := ownerWord(m.owner.Load()); o != recovering {
		return m.recoveryLost(o)
	}
	died := m.diedName()
	m.words.died.Store(0)
	if m.log != nil {
		m.log.storeState(0)
	}
	// sync(mutex.release): release
	if !m.owner.CompareAndSwap(uint32(recovering), next) {
		return m.recoveryLost(ownerWord(m.owner.Load()))
	}
	if !m.internal {
		m.a.Happened(arenakernel.EventRepaired, m.object, nil, died, nil)
	}
	return nil
}

// recoveryLost returns the error of a recovery that finds the owner word changed to o. During a repair, only this
// process may change the word.
func (m *Mutex) recoveryLost(o ownerWord) error {
	if err := m.opening.lostWords("mutex.recover"); err != nil {
		return err
	}
	return m.fail("mutex.recover", shmsync.ErrCorrupt, nil, overwritten(o))
}

// passThrough takes a lock that needs no recovery, and releases it.
func (m *Mutex) passThrough(ctx context.Context) error {
	if !m.queue.Enter() {
		return m.closed()
	}
	defer m.queue.Exit()
	w := waiter{m: m, cancel: park.CancelBy(ctx)}
	defer w.cancel.Stop()
	// LockContext would run the function Repair of the options. The caller of Recover passed its own repair, so the
	// argument is false.
	err := w.acquire(false)
	if err == nil {
		race.Acquire(m.key)
		m.Unlock()
	}
	return err
}

// takeFrom takes m for a recovery: it changes the owner word from o, which says owner-dead or not recoverable, to a
// word that names this process. It reports whether it did. The caller has called mayTake.
func (m *Mutex) takeFrom(o, to ownerWord) bool {
	if m.internal {
		return m.owner.CompareAndSwap(uint32(o), uint32(to)) // a not recoverable word names no participant
	}
	return arenakernel.TakeFromGone(m.a, o.participant(), m.owner, uint32(o), uint32(to))
}

// runRepair runs repair while this process recovers m, and ends the recovery. If repair fails, m becomes not
// recoverable. waited is true if Close of the handle waits for the call of runRepair.
func (m *Mutex) runRepair(repair func() error, waited bool) (err error) {
	who := m.diedName() // read now: after this recovery, another recovery may change the name
	done := false
	defer func() {
		if done && err == nil {
			return
		}
		race.ReleaseMerge(m.key)
		lost := m.owner.CompareAndSwap(uint32(makeOwner(kindRecovering, m.name)), uint32(ownerNotRecoverable))
		crashpoint.Hit("mutex.recover.lost")
		wakeAllOf(m.a, m.words)
		if lost && !m.internal {
			m.a.Happened(arenakernel.EventNotRecoverable, m.object, nil, who, err)
		}
	}()
	defer m.opening.repairing(nil, waited).end()
	if err = repair(); err != nil {
		err = m.fail("mutex.recover", shmsync.ErrNotRecoverable, m.a.Who(who), "the repair failed: "+err.Error())
	}
	done = true
	crashpoint.Hit("mutex.recover.repaired")
	return err
}

package prims

import (
	"context"
	"fmt"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("rwmutex.rollback.mutex")
	_ = crashpoint.Register("rwmutex.rollback.taken")
	_ = crashpoint.Register("rwmutex.rollback.opened")
)

// Update locks m for writing, calls f, and unlocks m. If f returns nil, the changes that f made stay. If f returns an
// error, panics or calls runtime.Goexit, or if this process dies, all bytes that f has saved with tx get their old
// values back. They do so before another process gets m for reading or writing; see [Tx]. Update returns the error of
// f.
//
// m must have PolicyRollback; otherwise Update panics. The rules for f and the errors are those of [Mutex.Update].
// In addition, f must not downgrade m.
//
// Update synchronizes as Lock and Unlock do.
func (m *RWMutex) Update(f func(tx *Tx) error) error { return m.UpdateContext(nil, f) }

// UpdateContext is like Update, but returns ctx.Err() if ctx ends before m is locked.
func (m *RWMutex) UpdateContext(ctx context.Context, f func(tx *Tx) error) (err error) {
	const op = "rwmutex.update"
	tx := m.tx
	if tx == nil {
		panic("shmsync: Update of rwmutex " + objectName(m.object) + ", whose policy is " + m.policy.String() +
			": only a lock that was made with PolicyRollback has an undo log")
	}
	if err := tx.supported(op); err != nil {
		return err
	}
	if err := m.begin(op); err != nil {
		return err
	}
	defer m.finish()
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	if err := tx.begin(op); err != nil {
		m.loseLog(err)
		return err
	}
	defer m.endUpdate(tx, &err)
	tx.inside.begin()
	err = f(tx)
	tx.ended = true
	return err
}

// endUpdate ends an Update. It is deferred, so that it also runs after a panic.
func (m *RWMutex) endUpdate(tx *Tx, err *error) {
	tx.inside.end()
	if tx.failed != nil {
		if r := recover(); r != nil && r != any(txEnd{tx}) {
			defer panic(r)
		}
		*err = tx.failed
	}
	if gateWord(m.gate.Load()) != makeGate(gateHeld, m.name) {
		tx.open = false
		if tx.tail != 0 {
			// Other processes may have changed the data since m was unlocked. So the log must not be undone, even
			// if this process dies later while it holds m.
			tx.log.loseForeign(makeLogState(logActive, m.name, tx.tail))
		}
		panic("shmsync: the function of an Update has unlocked rwmutex " + objectName(m.object))
	}
	if bad := tx.finish(tx.ended && *err == nil); bad != nil {
		*err = m.fail("rwmutex.update", shmsync.ErrCorrupt, nil, bad.Error())
		m.loseLog(*err)
		return
	}
	m.Unlock()
}

// loseLog makes m not recoverable, and releases it. The writer calls loseLog when the undo log is in a state
// that no correct process leaves. The reason is in the parameter why.
func (m *RWMutex) loseLog(why error) {
	if n := m.log.state().participant(); n != 0 {
		m.words.died.Store(uint32(n))
	}
	m.log.lose()
	who := m.diedName() // read while this process still holds m, so no other process can have recovered m
	lost := m.gate.CompareAndSwap(uint32(makeGate(gateHeld, m.name)), uint32(gateNotRecoverable))
	wakeReaders(&m.wakeWordReaders)
	m.writers.Unlock()
	if lost {
		m.a.Happened(arenakernel.EventNotRecoverable, m.object, nil, who, why)
	}
}

// rwmutexLog returns the undo log of an RWMutex. The log begins mutexBytes after the start of the body, even if the
// words of the RWMutex take fewer bytes, as they do in an arena without counters. The result is nil without an error if
// the policy is not PolicyRollback. It is also nil without an error if the object has no bytes for a log, because a
// peer must then have overwritten the policy. An error means that the object has bytes for a log, but that these bytes
// are not a valid log.
func rwmutexLog(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll) (*undoLog, error) {
	if policyOf(w.policy) != PolicyRollback || o.Size <= uint64(mutexBytes) {
		return nil, nil
	}
	return logOf(a, o, uint64(mutexBytes))
}

// undone reports whether the changes of the participant in the gate have to be undone after its death, if the lock has
// an undo log. It returns false for a participant that only waits for readers, because that participant has written
// nothing.
func (g gateWord) undone() bool { return g.taken() && g.kind() != gateClosed }

// logged reports whether m has an undo log, and the changes of the participant in the gate g have to be undone after
// its death.
func (m *RWMutex) logged(g gateWord) bool { return m.log != nil && g.undone() }

// endDead cleans up after the participant in gate g, which was found dead. It undoes the changes of that participant,
// or it opens the gate or marks the gate owner-dead; see markOwnerDead. It returns false if the gate has to stay as it
// is for now, because a system call of that participant may still write to the data.
//
// Preconditions: this goroutine has the writers' mutex, and Close of the arena waits for the call. Close
// of the arena rolls back, too, and two rollbacks must not copy old bytes at the same time.
func (m *RWMutex) endDead(g gateWord) (changed bool) {
	if m.logged(g) {
		return rollBackRWMutex(m.a, m.object, m.words, m.log, g)
	}
	return m.markOwnerDead(g)
}

// tryEndDead does what the method endDead does, for a reader, which does not have the writers' mutex. If the changes
// have to be undone, tryEndDead needs that mutex, and gives up if it cannot get the mutex at once. It must not wait:
// the process that has the mutex undoes the changes itself, and may then keep the mutex for a long upgradable hold.
func (m *RWMutex) tryEndDead(g gateWord) (changed bool) {
	if !m.logged(g) || !m.a.Gone(g.participant()) || !m.writers.TryLock() {
		return false
	}
	err := m.resolveGate("rwmutex.tryrlock")
	m.releaseWriters()
	return err == nil
}

// rollBackRWMutex ends the transaction in the undo log, and opens the gate g. It undoes the transaction, unless the
// commit has already taken effect. The participant in g is dead. It was the writer, or it was rolling back for a
// writer. If a system call of that participant may still write to the data, rollBackRWMutex does nothing and
// returns false.
//
// During the rollback, the gate names the process that rolls back. If that process dies, the next process finds its
// ID in the gate and begins again at the tail of the log. The log keeps the ID of the writer.
//
// Preconditions: this process has the writers' mutex. So no other process closes the gate during the rollback. The
// next process that gets the mutex finds the gate open or not recoverable, unless this process dies before it has
// changed the gate.
func rollBackRWMutex(a *arenakernel.Arena, obj arenakernel.Object, w rwmutexAll, l *undoLog, g gateWord) (changed bool) {
	dead := g.participant()
	if !a.Gone(dead) {
		return false
	}
	if g.kind() != gateRecovering {
		l.disown(w.gate, ownerWord(g))
	}
	recovering := makeGate(gateRecovering, a.Self())
	if !arenakernel.TakeFromGone(a, dead, w.gate, uint32(g), uint32(recovering)) {
		return true
	}
	crashpoint.Hit("rwmutex.rollback.taken")
	readers, _ := rwmutexWakeWords(a, w)
	if err := l.recover(); err != nil {
		w.died.Store(uint32(dead))
		l.lose()
		w.gate.CompareAndSwap(uint32(recovering), uint32(gateNotRecoverable))
		wakeReaders(&readers)
		a.Happened(arenakernel.EventNotRecoverable, obj, nil, dead, err)
		return true
	}
	countsOf(a, &w.writers.counts).add(countRecovery)
	// sync(rwmutex.gate): release
	w.gate.CompareAndSwap(uint32(recovering), uint32(gateOpen))
	crashpoint.Hit("rwmutex.rollback.opened")
	wakeReaders(&readers)
	tellDied(a, obj, nil, dead, true)
	return true
}

// rollbackDue reports whether the reaper of a participant has to roll back for the process that the gate names. The
// parameter dead is the participant that is reaped. The gate may name this participant, or a participant that died
// earlier. The reaper of the earlier one could not roll back if the reaped participant had the writers' mutex at that
// time.
func rollbackDue(a *arenakernel.Arena, w rwmutexAll, dead arenakernel.ParticipantID) (gateWord, bool) {
	g := gateWord(w.gate.Load())
	n := g.participant()
	return g, g.valid() && g.undone() && (a.Reaps(dead, n) || !a.Current(n)) && a.Gone(n)
}

// reapTries bounds how often a reaper reads a word again because another process has changed the word. No correct
// process stores the ID of a participant in a word after that participant has died. So correct peers change a word that
// names the dead participant only a few times. But a peer that breaks the rules may change the word all the time.
const reapTries = 16

// rollBackDue calls rollBackRWMutex as long as rollbackDue reports true.
//
// Preconditions: this process has the writers' mutex.
func rollBackDue(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll, l *undoLog, dead arenakernel.ParticipantID) {
	for range reapTries {
		if g, is := rollbackDue(a, w, dead); !is || !rollBackRWMutex(a, o, w, l, g) {
			return
		}
	}
}

// reapUpdate undoes an unfinished Update if rollbackDue reports true. The parameter dead is the participant that is
// reaped.
//
// If another process has the writers' mutex, reapUpdate does nothing: that process rolls back before it closes the
// gate, or when it releases the mutex; see releaseWriters. So the reaping may end before the rollback. If this process
// dies while it has the mutex, the mutex becomes free again.
func reapUpdate(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll, l *undoLog, dead arenakernel.ParticipantID) {
	for range reapTries {
		if _, is := rollbackDue(a, w, dead); !is || !takeToRollBack(a, o, w) {
			return
		}
		crashpoint.Hit("rwmutex.rollback.mutex")
		rollBackDue(a, o, w, l, dead)
		releaseAfterRollback(a, o, w)
		wakeOneOf(a, w.writers)
		// While this process had the mutex, another reaper may have given up because the mutex was held. So check
		// again.
	}
}

// rollingBack is the set of the RWMutexes whose writers' mutex is held by a reaper in this process. The set is
// necessary because the owner word of such a mutex looks as if an earlier handle of this process had left an
// upgradable hold.
var rollingBack struct {
	sync.Mutex
	of map[rolledBack]bool // guarded by: Mutex
}

type rolledBack struct {
	segment any
	off     arenakernel.Offset
}

// takeToRollBack takes the writers' mutex of o for a reaper, and reports whether it did. It fails if the mutex is
// not free.
func takeToRollBack(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll) bool {
	r := &rollingBack
	r.Lock()
	defer r.Unlock()
	if !w.writers.owner.CompareAndSwap(0, uint32(a.Self())) {
		return false
	}
	if r.of == nil {
		r.of = map[rolledBack]bool{}
	}
	r.of[rolledBack{a.Segment(), o.Offset}] = true
	return true
}

// releaseAfterRollback releases the mutex that takeToRollBack took.
func releaseAfterRollback(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll) {
	r := &rollingBack
	r.Lock()
	defer r.Unlock()
	// sync(mutex.release): release
	w.writers.owner.CompareAndSwap(uint32(a.Self()), 0)
	delete(r.of, rolledBack{a.Segment(), o.Offset})
}

// releaseWriters releases the writers' mutex, and then rolls back for a dead writer if necessary. While the dead writer
// is not gone, the caller cannot roll back, and leaves the gate as it is. Meanwhile a reaper of the dead writer finds
// the mutex held, and gives up.
//
// No rollback is missed. If the dead writer becomes gone while the caller has the mutex, releaseWriters rolls back. If
// the dead writer becomes gone later, its reaper finds the mutex free and rolls back.
//
// The next writer may close the handle as soon as it has the mutex, and Close does not wait for every caller of
// releaseWriters. So releaseWriters makes Close wait. If this process is already leaving the arena, the last steps of
// leaving release the mutex and roll back. If only the handle has ended, releaseWriters releases the mutex, and leaves
// the rollback to the next call.
func (m *RWMutex) releaseWriters() {
	s, ok := m.opening.tryServe(m.writers.queue)
	if !ok {
		m.unlockWriters()
		return
	}
	defer s.end()
	m.writers.Unlock()
	if m.log != nil {
		reapUpdate(m.a, m.object, m.words, m.log, gateWord(m.gate.Load()).participant())
	}
}

// unlockWriters releases the writers' mutex. It does nothing if this process no longer has the mutex: this process has
// left the arena, or a peer has overwritten the words.
func (m *RWMutex) unlockWriters() {
	if !m.writers.queue.EnterStay() {
		return
	}
	defer m.writers.queue.ExitLasting()
	if o := ownerWord(m.words.writers.owner.Load()); o.held() && o.participant() == m.name {
		m.writers.Unlock()
	}
}

// checkUpdate returns an error if the state of the undo log of an RWMutex is impossible, and nil otherwise.
func checkUpdate(o arenakernel.Object, w rwmutexAll, l *undoLog) error {
	before := gateWord(w.gate.Load())
	s, after := l.state(), gateWord(w.gate.Load())
	switch {
	case before != after, before == gateNotRecoverable, !before.undone() && s == 0, before.undone() && (s.valid(l.size) || s == logStateLost):
		return nil
	}
	return &shmsync.Error{Op: "rwmutex.check", Object: objectName(o), Err: shmsync.ErrCorrupt,
		Detail: fmt.Sprintf("gate %v, undo log %v", before, s)}
}

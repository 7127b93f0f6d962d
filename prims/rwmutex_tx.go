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

// Update locks m for writing, calls f, and unlocks m. If f returns nil, its changes stay. If f returns an
// error, panics or calls runtime.Goexit, or if this process dies, all bytes that f has saved with tx get their
// old values back before another process gets m for reading or writing; see [Tx]. Update returns the error of
// f.
//
// m must have PolicyRollback; otherwise Update panics. The rules and the errors are those of
// [Mutex.Update]. In addition f must not downgrade m.
//
// Update synchronizes as Lock and Unlock do.
func (m *RWMutex) Update(f func(tx *Tx) error) error { return m.UpdateContext(nil, f) }

// UpdateContext is Update that ends with ctx.Err() if ctx ends before m is locked.
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
	err = f(tx)
	tx.ended = true
	return err
}

// endUpdate ends an Update. It is deferred, so that it runs after a panic, too.
func (m *RWMutex) endUpdate(tx *Tx, err *error) {
	if tx.failed != nil {
		if r := recover(); r != nil && r != any(txEnd{tx}) {
			defer panic(r)
		}
		*err = tx.failed
	}
	if gateWord(m.gate.Load()) != makeGate(gateHeld, m.name) {
		tx.open = false
		if tx.tail != 0 {
			// As in Mutex.endUpdate: other processes may have changed the data since m was unlocked.
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

// loseLog makes m not recoverable, and releases it. It is called by the writer when the undo log is in a state
// that no correct process leaves.
func (m *RWMutex) loseLog(why error) {
	if n := m.log.state().participant(); n != 0 {
		m.words.died.Store(uint32(n))
	}
	m.log.lose()
	lost := m.gate.CompareAndSwap(uint32(makeGate(gateHeld, m.name)), uint32(gateNotRecoverable))
	wakeReaders(&m.wakeWordReaders)
	m.writers.Unlock()
	if lost {
		m.a.Happened(arenakernel.EventNotRecoverable, m.object, nil, m.diedName(), why)
	}
}

// rwmutexLog returns the undo log of an RWMutex, or nil if it has no log. The log follows the words of a whole
// Mutex, whether or not the arena has counters. An object without room for a log has none, even if a peer has
// written PolicyRollback into its words. An error means that the RWMutex should have a log and has none.
func rwmutexLog(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll) (*undoLog, error) {
	if policyOf(w.policy) != PolicyRollback || o.Size <= uint64(mutexBytes) {
		return nil, nil
	}
	return logOf(a, o, uint64(mutexBytes))
}

// undone reports whether the death of the participant in g requires a rollback, if the lock has a log. A
// process that only waits for readers has written nothing.
func (g gateWord) undone() bool { return g.taken() && g.kind() != gateClosed }

// logged reports whether m has a log and the death of the participant in gate g requires a rollback.
func (m *RWMutex) logged(g gateWord) bool { return m.log != nil && g.undone() }

// endDead rolls back or marks gate g, whose participant was found dead. It reports false if the gate has to
// stay as it is until the process of that participant has ended.
//
// Preconditions: this goroutine has the writers' mutex.
func (m *RWMutex) endDead(g gateWord) (changed bool) {
	if m.logged(g) {
		return rollBackRWMutex(m.a, m.object, m.words, m.log, g)
	}
	return m.markOwnerDead(g)
}

// tryEndDead does what the method endDead does, for a reader, which does not have the writers' mutex. It rolls
// back only if it gets the mutex without waiting. A reader must not wait for the mutex: the process that has
// the mutex rolls back itself, and may then keep the mutex for long, as an upgradable hold does.
func (m *RWMutex) tryEndDead(g gateWord) (changed bool) {
	if !m.logged(g) || !m.a.Gone(g.participant()) || !m.writers.TryLock() {
		return false
	}
	err := m.resolveGate("rwmutex.tryrlock")
	m.writers.Unlock()
	return err == nil
}

// rollBackRWMutex ends the transaction in the log, and opens gate g. It undoes the transaction, unless the
// commit has already taken effect. The participant in g is dead: it was the writer, or it was rolling back. If
// its process has not ended, rollBackRWMutex does nothing and reports false.
//
// During the rollback, the gate names the process that rolls back. If that process dies, the next process finds
// its name and begins again at the tail of the log. The log keeps the name of the writer.
//
// Preconditions: this process has the writers' mutex. So no other process closes the gate meanwhile. The next
// process that gets the mutex finds the gate open, unless this process dies before that.
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

// rollbackDue reports whether the reap of the participant dead has to roll back for the process that the gate
// names. That may be dead itself. It may also be another dead process: its reaper could not get the writers'
// mutex, because dead had it.
func rollbackDue(a *arenakernel.Arena, w rwmutexAll, dead arenakernel.ParticipantID) (gateWord, bool) {
	g := gateWord(w.gate.Load())
	n := g.participant()
	return g, g.valid() && g.undone() && (a.Reaps(dead, n) || !a.Current(n)) && a.Gone(n)
}

// reapTries bounds how often a reaper reads a word again that a peer may rewrite all the time. Correct peers
// change such a word only a few times: a word names a dead process at most once, and no living process changes
// it meanwhile except to take it back.
const reapTries = 16

// rollBackDue rolls back as long as rollbackDue reports true.
//
// Preconditions: this process has the writers' mutex.
func rollBackDue(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll, l *undoLog, dead arenakernel.ParticipantID) {
	for range reapTries {
		if g, is := rollbackDue(a, w, dead); !is || !rollBackRWMutex(a, o, w, l, g) {
			return
		}
	}
}

// reapUpdate rolls back the changes that the participant dead has left in the gate of o, unless another
// process has the writers' mutex. In that case the other process rolls back before it closes the gate, or when
// it releases the mutex; see releaseWriters. The reap of that participant may end before that rollback. If
// this process dies while it has the mutex, the mutex becomes free again.
func reapUpdate(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll, l *undoLog, dead arenakernel.ParticipantID) {
	for range reapTries {
		if _, is := rollbackDue(a, w, dead); !is || !takeToRollBack(a, o, w) {
			return
		}
		crashpoint.Hit("rwmutex.rollback.mutex")
		rollBackDue(a, o, w, l, dead)
		releaseAfterRollback(a, o, w)
		wakeOneOf(a, w.writers)
		// Another reaper may have given up because it found the mutex held, so check again.
	}
}

// rollingBack is the set of the RWMutexes whose writers' mutex is held by a reaper of this process. The owner
// word of such a mutex looks as if an earlier handle of this process had left an upgradable hold.
var rollingBack struct {
	sync.Mutex
	of map[rolledBack]bool // guarded by: Mutex
}

type rolledBack struct {
	segment any
	off     arenakernel.Offset
}

// takeToRollBack takes the writers' mutex of o for a reaper, if it is free.
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

// releaseWriters releases the writers' mutex, and then rolls back if that is due. The caller may have found the
// gate of a dead writer and left it as it was. A reaper that found the mutex held meanwhile has given up.
//
// So no rollback is missed. If the process of the writer ends while the caller has the mutex, releaseWriters
// finds that and rolls back. If it ends later, the reaper finds the mutex free and rolls back.
func (m *RWMutex) releaseWriters() {
	m.writers.Unlock()
	if m.log != nil {
		reapUpdate(m.a, m.object, m.words, m.log, gateWord(m.gate.Load()).participant())
	}
}

// checkUpdate returns what is impossible about the log of an RWMutex, or nil.
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

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

// Update locks m for writing, calls f, and unlocks m. If f returns nil, its changes stay. If f
// returns an error, panics or calls runtime.Goexit, or if this process dies, everything that f has
// saved by tx is as it was before, byte for byte, before another process gets m, to read or to
// write; see [Tx]. Update returns the error of f.
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
			// As in Mutex.endUpdate: others may have changed the data since it was unlocked.
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

// loseLog makes m not recoverable, and releases it. This process writes, and has found a log that
// no correct process leaves.
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

// rwmutexLog returns the log of an RWMutex, nil for one without a log. It follows the words of a
// whole Mutex, whether or not the arena counts. It is also nil for an object without room for a log,
// whatever a peer has written into its policy. An error says that the RWMutex should have a log and
// has none.
func rwmutexLog(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll) (*undoLog, error) {
	if policyOf(w.policy) != PolicyRollback || o.Size <= uint64(mutexBytes) {
		return nil, nil
	}
	return logOf(a, o, uint64(mutexBytes))
}

// undone reports whether a rollback follows if the process in g dies, provided that the lock has a
// log. A process that only waits for readers has written nothing.
func (g gateWord) undone() bool { return g.taken() && g.kind() != gateClosed }

// logged reports whether the death of the participant in gate g is followed by a rollback.
func (m *RWMutex) logged(g gateWord) bool { return m.log != nil && g.undone() }

// endDead deals with gate g, whose participant was found dead. It reports false if the gate stays
// until that participant is gone.
//
// Preconditions: this goroutine has the writers' mutex.
func (m *RWMutex) endDead(g gateWord) (changed bool) {
	if m.logged(g) {
		return rollBackRWMutex(m.a, m.object, m.words, m.log, g)
	}
	return m.markOwnerDead(g)
}

// tryEndDead is endDead for a reader, which has no writers' mutex, and gets it if it can without
// waiting. It must not wait for it: the process that has the mutex rolls back, and may then keep it
// for long beside readers, as an upgradable hold does.
func (m *RWMutex) tryEndDead(g gateWord) (changed bool) {
	if !m.logged(g) || !m.a.Gone(g.participant()) || !m.writers.TryLock() {
		return false
	}
	err := m.resolveGate("rwmutex.tryrlock")
	m.writers.Unlock()
	return err == nil
}

// rollBackRWMutex ends the transaction that the dead writer, or the dead process that rolled back,
// has left, and opens gate g, which it keeps closed. It reports false if the gate stays: the
// rollback begins when that process is gone.
//
// The gate names the process that rolls back. So after its death the next process begins again
// from the tail of the log, which keeps the name of the writer.
//
// Preconditions: this process has the writers' mutex. So no other process closes the gate
// meanwhile, and a process that gets the mutex finds the gate open, or what a death here has left.
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

// rollbackDue reports whether the reap of dead rolls back what the process in the gate has left.
// That may also be another process, for which no reaper got the writers' mutex while dead had it.
func rollbackDue(a *arenakernel.Arena, w rwmutexAll, dead arenakernel.ParticipantID) (gateWord, bool) {
	g := gateWord(w.gate.Load())
	n := g.participant()
	return g, g.valid() && g.undone() && (a.Reaps(dead, n) || !a.Current(n)) && a.Gone(n)
}

// reapTries bounds how often a reaper looks at words that a peer may rewrite all the time. A correct
// peer changes them a few times at most: a dead process is named once, and no living process changes
// what names it.
const reapTries = 16

// rollBackDue rolls back as long as rollbackDue says that this is due.
//
// Preconditions: this process has the writers' mutex.
func rollBackDue(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll, l *undoLog, dead arenakernel.ParticipantID) {
	for range reapTries {
		if g, is := rollbackDue(a, w, dead); !is || !rollBackRWMutex(a, o, w, l, g) {
			return
		}
	}
}

// reapUpdate rolls back what dead has left in the gate of o, unless another process has the writers' mutex. In
// that case the other process rolls back before it closes the gate, or when it releases the mutex; see
// releaseWriters. The reap of dead may end before that. If this process dies with the mutex, the mutex becomes
// free again.
func reapUpdate(a *arenakernel.Arena, o arenakernel.Object, w rwmutexAll, l *undoLog, dead arenakernel.ParticipantID) {
	for range reapTries {
		if _, is := rollbackDue(a, w, dead); !is || !takeToRollBack(a, o, w) {
			return
		}
		crashpoint.Hit("rwmutex.rollback.mutex")
		rollBackDue(a, o, w, l, dead)
		releaseAfterRollback(a, o, w)
		wakeOneOf(a, w.writers)
		// Another reaper may have found the mutex held meanwhile, so look again.
	}
}

// rollingBack has the RWMutexes whose writers' mutex a reaper of this process has. The owner word
// cannot tell such a mutex from an upgradable hold that an earlier handle of this process has left.
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

// releaseWriters releases the writers' mutex for a caller that may have left the gate of a dead
// writer as it was. A reaper that found the mutex held meanwhile does not come back, so the caller
// rolls back if it can.
//
// So no rollback is missed. If the reaper finds that the writer is gone while a caller has the mutex, the
// caller finds that here, too. Otherwise the reaper finds it after the mutex was released, and rolls back
// itself.
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

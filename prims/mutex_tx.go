package prims

import (
	"context"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("tx.rollback.taken")
	_ = crashpoint.Register("tx.rollback.released")
)

// Update locks m, calls f, and unlocks m. If f returns nil, its changes stay. If f returns an error, panics or calls
// runtime.Goexit, or if this process dies, all data that f has saved through tx gets its old contents back; see [Tx].
// Update returns the error of f.
//
// m must have PolicyRollback; otherwise Update panics. An error that Is [shmsync.ErrNoSpace] means that the undo
// log was full, and that nothing has changed. An error that Is [shmsync.ErrNotSupported] means that the kernel gave
// this process no byte lock, which PolicyRollback needs. The other errors are those of LockContext, but never
// ErrOwnerDead.
//
// Updates of one Mutex do not nest: if f calls Update or Lock of m, that call panics, because it would wait for
// itself. Functions that f calls get tx as an argument instead. An Update of another Mutex within f is a separate
// transaction: its changes stay even if the outer Update is undone. The two transactions must not save the same
// bytes. If f closes m or its arena, Close panics, because it would wait for this Update.
//
// f must not unlock m, so a [Cond.Wait] with m in f panics. If f has unlocked m, Update panics and undoes nothing,
// because other processes may have changed the data since then. The next Update then returns ErrCorrupt, and m
// needs a Recover. Update synchronizes as Lock and Unlock do.
func (m *Mutex) Update(f func(tx *Tx) error) error { return m.UpdateContext(nil, f) }

// UpdateContext is like Update, but returns ctx.Err() if ctx ends before m is locked.
func (m *Mutex) UpdateContext(ctx context.Context, f func(tx *Tx) error) (err error) {
	tx := m.tx
	if tx == nil {
		panic("shmsync: Update of " + m.named("mutex ") + ", whose policy is " + m.policy.String() +
			": only a lock that was made with PolicyRollback has an undo log")
	}
	if err := tx.supported("mutex.update"); err != nil {
		return err
	}
	if !m.queue.Enter() {
		return m.closed()
	}
	defer m.queue.Exit()
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	if err := tx.begin("mutex.update"); err != nil {
		m.loseLog(ownerWord(m.owner.Load()), err)
		return err
	}
	defer m.endUpdate(tx, &err)
	tx.inside.begin()
	err = f(tx)
	tx.ended = true
	return err
}

// endUpdate ends an Update. It is deferred, so that it also runs after a panic.
func (m *Mutex) endUpdate(tx *Tx, err *error) {
	tx.inside.end()
	if tx.failed != nil {
		if r := recover(); r != nil && r != any(txEnd{tx}) {
			defer panic(r)
		}
		*err = tx.failed
	}
	o := ownerWord(m.owner.Load())
	if o.participant() != m.name || !o.held() {
		tx.open = false
		if tx.tail != 0 {
			// Other processes may have changed the data since f unlocked m. So no process may undo the log, even if
			// this process dies later while it holds m.
			tx.log.loseForeign(makeLogState(logActive, m.name, tx.tail))
		}
		panic("shmsync: the function of an Update has unlocked " + m.named("mutex "))
	}
	if bad := tx.finish(tx.ended && *err == nil); bad != nil {
		*err = m.fail("mutex.update", shmsync.ErrCorrupt, nil, bad.Error())
		m.loseLog(o, *err)
		return
	}
	m.Unlock()
}

// loseLog makes m not recoverable, because its undo log has contents that no correct process writes. The second
// parameter is the error that describes the contents. o is the owner word, which names this process.
func (m *Mutex) loseLog(o ownerWord, why error) {
	if n := m.log.state().participant(); n != 0 {
		m.words.died.Store(uint32(n))
	}
	m.log.lose()
	who := m.diedName() // read now, while this process holds m and no other process can recover m
	lost := m.owner.CompareAndSwap(uint32(o), uint32(ownerNotRecoverable))
	wakeAllOf(m.a, m.words)
	if lost {
		m.a.Happened(arenakernel.EventNotRecoverable, m.object, nil, who, why)
	}
}

// notRecoverable returns the error that says that the lock is not recoverable.
func (m *Mutex) notRecoverable(op string) error {
	return notRecoverable(m.a, m.object, op, m.diedName(), m.log)
}

// notRecoverable returns the error of a lock that is not recoverable. l is its undo log, or nil if it has none. If
// the log cannot be undone, the error Is ErrCorrupt, too. died is the participant whose death made the lock
// owner-dead.
func notRecoverable(a *arenakernel.Arena, o arenakernel.Object, op string, died arenakernel.ParticipantID, l *undoLog) error {
	if l != nil && l.check() != nil {
		both := fmt.Errorf("%w: %w", shmsync.ErrNotRecoverable, shmsync.ErrCorrupt)
		return failed(a, o, op, both, a.Who(died), "its undo log cannot be undone")
	}
	return failed(a, o, op, shmsync.ErrNotRecoverable, a.Who(died), "")
}

// mutexLog returns the undo log of a Mutex, or nil if it has none. For an object of another kind the result is nil,
// even if a peer has stored PolicyRollback in the object. An error means that the Mutex should have a log and has
// none.
func mutexLog(a *arenakernel.Arena, o arenakernel.Object, w *mutexWords) (*undoLog, error) {
	if o.Kind != mutexKind || policyOf(w.policy) != PolicyRollback {
		return nil, nil
	}
	return logOf(a, o, uint64(mutexBytes))
}

// rollBackMutex undoes the unfinished transaction of a dead holder and releases the Mutex, whose undo log is l. The
// owner word o names the holder. While a system call of the holder might still store data, rollBackMutex leaves the
// word as it is and returns false.
func rollBackMutex(a *arenakernel.Arena, obj arenakernel.Object, w *mutexWords, l *undoLog, o ownerWord) (changed bool) {
	dead := o.participant()
	if !o.held() || !a.Gone(dead) {
		return false
	}
	if o.kind() != kindRecovering {
		l.disown(&w.owner, o)
	}
	recovering := makeOwner(kindRecovering, a.Self())
	if !arenakernel.TakeFromGone(a, dead, &w.owner, uint32(o), uint32(recovering)) {
		return true
	}
	crashpoint.Hit("tx.rollback.taken")
	if err := l.recover(); err != nil {
		w.died.Store(uint32(dead))
		l.lose()
		w.owner.CompareAndSwap(uint32(recovering), uint32(ownerNotRecoverable))
		wakeAllOf(a, w)
		a.Happened(arenakernel.EventNotRecoverable, obj, nil, dead, err)
		return true
	}
	countsOf(a, &w.counts).add(countRecovery)
	// sync(mutex.release): release
	w.owner.CompareAndSwap(uint32(recovering), 0)
	crashpoint.Hit("tx.rollback.released")
	wakeOneOf(a, w)
	tellDied(a, obj, nil, dead, true)
	return true
}

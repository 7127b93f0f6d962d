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
	_ = crashpoint.Register("rwmutex.owner_dead.marked")
	_ = crashpoint.Register("rwmutex.recover.taken")
	_ = crashpoint.Register("rwmutex.recover.repaired")
	_ = crashpoint.Register("rwmutex.recover.lost")
	_ = crashpoint.Register("rwmutex.recover.opened")
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: rwmutexKind, Version: rwmutexVersion, Repair: alone(repairRWMutex), Wake: wakeRWMutex, Check: checkRWMutex, Inspect: inspectRWMutex,
		UserData: mutexUserData,
	})
}

// markOwnerDead opens the gate g of a dead participant, or marks the gate as owner-dead, as the policy says. It returns
// false if the gate stays as it is for now: a system call of the participant may still write to the data, or the
// changes of the participant have to be undone.
func (m *RWMutex) markOwnerDead(g gateWord) (changed bool) {
	return !m.logged(g) && markOwnerDeadRWMutex(m.a, m.object, m.words, g)
}

// markOwnerDeadRWMutex changes the gate g of a dead participant and wakes the readers. The readers find the gate open
// and go in, or they return the error. Writers need no wake: the death has made the writers' mutex free, so one writer
// after the other gets the mutex and checks the gate.
func markOwnerDeadRWMutex(a *arenakernel.Arena, obj arenakernel.Object, w rwmutexAll, g gateWord) (changed bool) {
	next := g.ownerDied(policyOf(w.policy))
	if next == g || g.kind() == gateHeld && next == gateOpen && !a.Gone(g.participant()) {
		return false
	}
	take := arenakernel.TakeFromDead[uint32]
	if g.kind() == gateHeld && next == gateOpen {
		take = arenakernel.TakeFromGone
	}
	// sync(rwmutex.gate): release
	if !take(a, g.participant(), w.gate, uint32(g), uint32(next)) {
		return true
	}
	crashpoint.Hit("rwmutex.owner_dead.marked")
	readers, _ := rwmutexWakeWords(a, w)
	wakeReaders(&readers)
	if g.kind() != gateClosed {
		tellDied(a, obj, nil, g.participant(), next == gateOpen)
	}
	return true
}

// wakeReaders wakes all sleeping readers. It does not clear the bit of the wake word that announces the readers; only
// letIn does that. If wakeReaders cleared the bit, a writer might not learn that there are readers to let in.
func wakeReaders(b *park.WakeWord) {
	b.Touch()
	b.DeliverAll()
}

// repairRWMutex takes back the holds of the dead participant on the object obj.
func repairRWMutex(a *arenakernel.Arena, obj arenakernel.Object, dead arenakernel.ParticipantID) {
	w, err := rwmutexAt(a, obj)
	if err != nil {
		return
	}
	for _, word := range readReaderWords(a, obj).words {
		if word.slot != dead.Slot() {
			continue
		}
		for range reapTries {
			r := word.load()
			if !a.Reaps(dead, word.name(r)) || r == r.cleared() {
				break
			}
			// sync(rwmutex.leave): release
			if arenakernel.TakeFromDead(a, word.name(r), word.state, uint64(r), uint64(r.cleared())) {
				_, writer := rwmutexWakeWords(a, w)
				writer.WakeAll()
				break
			}
		}
	}
	l, err := rwmutexLog(a, obj, w)
	if err != nil {
		return // no process can open the object, so the hold need not be taken back
	}
	for range reapTries {
		g := gateWord(w.gate.Load())
		if !g.valid() || !g.taken() || !a.Reaps(dead, g.participant()) || l != nil && g.undone() || !markOwnerDeadRWMutex(a, obj, w, g) {
			break
		}
	}
	if l != nil && dead == a.Self() && ownerWord(w.writers.owner.Load()).participant() == dead {
		// Roll back before the mutex is released. This process is not dead, but leaves the arena. If a writer got the
		// mutex before the rollback, it would find the gate closed by a living process, and would report ErrCorrupt.
		rollBackDue(a, obj, w, l, dead)
	}
	repairMutexWords(a, obj, w.writers, dead, true)
	if l != nil {
		reapUpdate(a, obj, w, l, dead)
	}
}

// wakeRWMutex makes the wakes that a dead process did not make. The argument owed says which wakes may be missing.
func wakeRWMutex(a *arenakernel.Arena, obj arenakernel.Object, owed arenakernel.Owed) {
	w, err := rwmutexAt(a, obj)
	if err != nil {
		return
	}
	readers, writer := rwmutexWakeWords(a, w)
	if owed != arenakernel.OwedAnnounced || readers.Announced() {
		wakeReaders(&readers)
	}
	if owed != arenakernel.OwedAnnounced || writer.Announced() {
		writer.WakeAll()
	}
	wakeMutexWords(a, w.writers, owed)
}

func checkRWMutex(a *arenakernel.Arena, obj arenakernel.Object) error {
	w, err := rwmutexAt(a, obj)
	if err != nil {
		return err
	}
	g := gateWord(w.gate.Load())
	l, err := rwmutexLog(a, obj, w)
	if err != nil {
		return err
	}
	if !g.valid() || w.policy&policyMask > 1 && l == nil {
		return &shmsync.Error{Op: "rwmutex.check", Object: objectName(obj), Err: shmsync.ErrCorrupt,
			Detail: fmt.Sprintf("gate %v, policy %d", g, w.policy)}
	}
	if err := readReaderWords(a, obj).err; err != nil {
		return err
	}
	if l != nil {
		if err := checkUpdate(obj, w, l); err != nil {
			return err
		}
	}
	return checkMutexWords(obj, w.writers)
}

// checkReaders is called ten times a second while a goroutine of this process waits to read. It makes the wakes
// that another process did not make, because it was stopped or died. It also wakes readers of this process that were
// let in and have not noticed.
func (m *RWMutex) checkReaders() {
	g := gateWord(m.gate.Load())
	switch {
	case !g.valid() || !g.taken():
		wakeReaders(&m.wakeWordReaders)
	case m.a.Dead(g.participant()):
		if !m.markOwnerDead(g) && m.logged(g) && m.a.Gone(g.participant()) {
			wakeReaders(&m.wakeWordReaders) // one of the woken readers rolls back
		}
	case g.kind() == gateClosed && m.firstReader(1) == 0:
		// No reader has the lock, so the writer that closed the gate could go on. If this was also true at the last
		// check, the process of the writer may be stopped. The writer has not written anything yet, so the gate may
		// be opened. The writer keeps the writers' mutex, and closes the gate again when it runs.
		if m.stuck.Swap(uint32(g)) == uint32(g) && m.gate.CompareAndSwap(uint32(g), uint32(gateOpen)) {
			wakeReaders(&m.wakeWordReaders)
			m.wakeWordWriter.WakeAll()
		}
		return
	default:
		m.writers.dateHold() // whoever holds m for writing also has the writers' mutex
		r := m.registry
		r.Lock()
		m.catchUp(readerWord(m.mine.Load()))
		due := r.due
		r.Unlock()
		if due > 0 {
			wakeReaders(&m.wakeWordReaders)
		}
	}
	m.stuck.Store(0)
}

// checkWriter is called ten times a second while a goroutine of this process waits for readers to leave. It wakes the
// writer if no reader is left, because the process of the last reader may have been stopped or killed before it woke
// the writer. It also wakes the writer if another process has opened the gate; see checkReaders. Otherwise new readers
// could keep the writer waiting forever, because only the writer closes the gate again.
func (m *RWMutex) checkWriter() {
	if gateWord(m.gate.Load()) != m.closedByUs() || m.firstReader(1) == 0 {
		m.wakeWordWriter.WakeAll()
	}
}

// Recover makes m usable again after it became owner-dead or not recoverable. It locks m for writing, runs repair,
// and unlocks m. If repair returns an error or panics, m becomes not recoverable until a later Recover succeeds,
// and this Recover returns the error. Other callers wait while repair runs. If this process dies before repair
// returns, m is owner-dead again. When Recover calls repair, no system call of the dead process can write to the data
// any more.
//
// If m is neither owner-dead nor not recoverable, Recover waits for the lock, unlocks it and does not run repair.
// Recover returns the errors of LockContext except ErrOwnerDead. If repair is nil, Recover panics and leaves the
// lock as it is.
func (m *RWMutex) Recover(repair func() error) error {
	return m.RecoverContext(context.Background(), repair)
}

// RecoverContext is like Recover, but returns ctx.Err() if ctx ends while it waits. If it need not wait, it calls repair
// even though ctx has ended.
func (m *RWMutex) RecoverContext(ctx context.Context, repair func() error) error {
	mustHaveRepair(repair != nil, "rwmutex "+objectName(m.object))
	const op = "rwmutex.recover"
	if !m.opening.stayToRun() {
		return m.opening.refused(op)
	}
	defer m.opening.leaveStay(m.writers.queue)
	return m.recoverBy(ctx, op, repair, false)
}

// recoverBy does what Recover does, for a call that Close of the arena waits for. The parameter waited says whether the
// Close of the handle waits for the call, too.
func (m *RWMutex) recoverBy(ctx context.Context, op string, repair func() error, waited bool) error {
	if err := m.enqueue(ctx, op); err != nil {
		return err
	}
	recovering := makeGate(gateRecovering, m.name)
	var g gateWord
	for {
		g = gateWord(m.gate.Load())
		if g.kind() == gateOwnerDead && g.valid() && !m.a.Gone(g.participant()) {
			// Release the writers' mutex during this wait, so that other calls can return their errors.
			m.releaseWriters()
			if err := m.awaitGone(ctx, op, g); err != nil {
				return err
			}
			if err := m.enqueue(ctx, op); err != nil {
				return err
			}
			continue
		}
		if g.kind() != gateOwnerDead && g != gateNotRecoverable || !g.valid() {
			switch held, err := m.closeGateFor(ctx, op); {
			case err == nil:
				if err = m.drain(ctx, op); err == nil {
					m.Unlock()
				}
				return err
			case !held:
				return err
			case errors.Is(err, shmsync.ErrOwnerDead), errors.Is(err, shmsync.ErrNotRecoverable):
				continue
			default:
				m.releaseWriters()
				return err
			}
		}
		if arenakernel.TakeFromGone(m.a, g.participant(), m.gate, uint32(g), uint32(recovering)) {
			break
		}
	}
	defer m.unlockWriters()
	crashpoint.Hit("rwmutex.recover.taken")
	if n := g.participant(); n != 0 {
		// Only a process that has m may store words.died; see Mutex.taken.
		m.words.died.Store(uint32(n))
	}
	if m.log != nil {
		m.log.lose()
	}
	race.Acquire(m.wrote)
	race.Acquire(m.read)
	if err := m.runRepair(repair, waited); err != nil {
		return err
	}
	if g := gateWord(m.gate.Load()); g != recovering {
		return m.recoveryLost(op, g)
	}
	died := m.diedName()
	m.words.died.Store(0)
	if m.log != nil {
		m.log.storeState(0)
	}
	race.ReleaseMerge(m.wrote)
	// sync(rwmutex.gate): release
	if !m.gate.CompareAndSwap(uint32(recovering), uint32(gateOpen)) {
		return m.recoveryLost(op, gateWord(m.gate.Load()))
	}
	crashpoint.Hit("rwmutex.recover.opened")
	m.letIn()
	m.a.Happened(arenakernel.EventRepaired, m.object, nil, died, nil)
	return nil
}

// recoveryLost returns the error for a Recover that finds the value g in the gate instead of the value that it has
// stored.
func (m *RWMutex) recoveryLost(op string, g gateWord) error {
	if err := m.opening.lostWords(op); err != nil {
		return err
	}
	return m.fail(op, shmsync.ErrCorrupt, nil, overwritten(g))
}

// runRepair runs repair while the gate says that this process recovers m. If repair fails, m becomes not
// recoverable. The parameter waited says whether the Close of the handle waits for the call.
func (m *RWMutex) runRepair(repair func() error, waited bool) (err error) {
	who := m.diedName() // read while the gate keeps other recoveries out
	done := false
	defer func() {
		if done && err == nil {
			return
		}
		race.ReleaseMerge(m.wrote)
		lost := m.gate.CompareAndSwap(uint32(makeGate(gateRecovering, m.name)), uint32(gateNotRecoverable))
		crashpoint.Hit("rwmutex.recover.lost")
		wakeReaders(&m.wakeWordReaders)
		if lost {
			m.a.Happened(arenakernel.EventNotRecoverable, m.object, nil, who, err)
		}
	}()
	defer m.opening.repairing(nil, waited).end()
	if err = repair(); err != nil {
		err = &shmsync.Error{Op: "rwmutex.recover", Object: objectName(m.object), Err: shmsync.ErrNotRecoverable,
			Who: m.a.Who(who), Detail: "the repair failed: " + err.Error()}
	}
	done = true
	crashpoint.Hit("rwmutex.recover.repaired")
	return err
}

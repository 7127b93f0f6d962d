package prims

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("rwmutex.lock.queued")
	_ = crashpoint.Register("rwmutex.lock.closed")
	_ = crashpoint.Register("rwmutex.lock.announced")
	_ = crashpoint.Register("rwmutex.lock.woken")
	_ = crashpoint.Register("rwmutex.lock.acquired")
	_ = crashpoint.Register("rwmutex.lock.leaving")
	_ = crashpoint.Register("rwmutex.unlock.opened")
	_ = crashpoint.Register("rwmutex.unlock.granted")
	_ = crashpoint.Register("rwmutex.unlock.woken")
	_ = crashpoint.Register("rwmutex.downgrade.added")
)

// Lock locks m for writing, and waits until that is possible. It panics with an *[shmsync.Error] if the lock is
// owner-dead or not recoverable, or if this process closes the arena while the call waits.
func (m *RWMutex) Lock() { m.lockOrPanic() }

// lockOrPanic does what Lock does. It is a method of its own, so that the compiler can inline Lock.
func (m *RWMutex) lockOrPanic() {
	queued, held := m.lockAtOnce()
	if held {
		return
	}
	if err := m.lockWaiting(nil, queued); err != nil {
		panic(err)
	}
}

// LockContext locks m for writing, and waits until that is possible or ctx ends. An error means that m is not held.
// The error is ctx.Err(), or it Is ErrCorrupt or ErrClosed. Depending on the policy of m, it may also be one that
// Is ErrOwnerDead or ErrNotRecoverable. If the lock is free, the call takes it even though ctx has ended. A writer
// that gives up lets in the readers that it kept waiting.
func (m *RWMutex) LockContext(ctx context.Context) error { return m.lock(ctx) }

// lock first tries to take a free lock without calling begin, because begin would make the lock of a free RWMutex
// slower by a third. Only a call that may wait has to call begin, so that Close waits for that call.
func (m *RWMutex) lock(ctx context.Context) error {
	queued, held := m.lockAtOnce()
	if held {
		return nil
	}
	return m.lockWaiting(ctx, queued)
}

// lockWaiting locks m for writing, and waits if necessary. The parameter queued says whether this goroutine has the
// writers' mutex already.
func (m *RWMutex) lockWaiting(ctx context.Context, queued bool) error {
	const op = "rwmutex.lock"
	if err := m.begin(op); err != nil {
		if queued {
			m.releaseWriters()
		}
		return err
	}
	defer m.finish() // Close waits for this, so it also waits for a Repair
	for ; ; queued = false {
		err := m.lockOnce(ctx, op, queued)
		if m.repair == nil || !errors.Is(err, shmsync.ErrOwnerDead) {
			return waysOutOf(ctx, err)
		}
		if err := m.recoverBy(ctx, op, m.repair, true); err != nil {
			return err
		}
	}
}

// lockOnce locks m for writing, and does not call the function Repair of the options. The parameter queued says whether
// this goroutine has the writers' mutex already.
func (m *RWMutex) lockOnce(ctx context.Context, op string, queued bool) error {
	if !queued {
		if err := m.enqueue(ctx, op); err != nil {
			return err
		}
	}
	if held, err := m.closeGateFor(ctx, op); err != nil {
		if held {
			m.releaseWriters()
		}
		return err
	}
	return m.drain(ctx, op)
}

// enqueue takes the writers' mutex, and waits until that is possible.
func (m *RWMutex) enqueue(ctx context.Context, op string) error {
	if err := m.writers.LockContext(ctx); err != nil {
		return m.refused(op, err)
	}
	crashpoint.Hit("rwmutex.lock.queued")
	return nil
}

// refused converts an error of the writers' mutex into an error of m.
func (m *RWMutex) refused(op string, err error) error {
	var e *shmsync.Error
	if errors.As(err, &e) {
		return m.fail(op, e.Err, e.Who, e.Detail)
	}
	return err
}

// dyingError says that the process that the gate names is dead, but that its system calls may still store data.
type dyingError struct{ gate gateWord }

func (e *dyingError) Error() string { return "its holder died and has not ended" }

// closeGateFor does what the method closeGate does, but in addition waits, if necessary, until a dead holder cannot
// store any more; see untilResolved.
func (m *RWMutex) closeGateFor(ctx context.Context, op string) (held bool, err error) {
	return m.untilResolved(ctx, op, m.closeGate)
}

// untilResolved calls f until its result is not a dyingError. Between the calls it waits until the dead holder that
// the gate names cannot store any more. During this wait it releases the writers' mutex. Otherwise, if this process
// were stopped, other writers could not go on. The result held says whether this goroutine has the mutex at the
// end. If there is no error, it has the mutex.
//
// Preconditions: this goroutine has the writers' mutex.
func (m *RWMutex) untilResolved(ctx context.Context, op string, f func(op string) error) (held bool, err error) {
	for {
		err := f(op)
		dying, ok := err.(*dyingError) // errors.As would allocate
		if !ok {
			return true, err
		}
		m.releaseWriters()
		if err := m.awaitGone(ctx, op, dying.gate); err != nil {
			return false, err
		}
		if err := m.enqueue(ctx, op); err != nil {
			return false, err
		}
	}
}

// awaitGone waits until the dead participant that the word g names cannot store any more, or until the gate has
// another word.
func (m *RWMutex) awaitGone(ctx context.Context, op string, g gateWord) error {
	names := func() bool { return gateWord(m.gate.Load()) == g }
	if err := awaitGone(ctx, m.a, m.writers.queue, g.participant(), names); err != errClosing {
		return err
	}
	return m.closed(op)
}

// closeGate closes the gate, which keeps new readers out.
//
// Preconditions: this goroutine has the writers' mutex.
func (m *RWMutex) closeGate(op string) error {
	for {
		if err := m.resolveGate(op); err != nil {
			return err
		}
		if m.readerWords().err != nil {
			return m.corruptReaders(op)
		}
		if m.gate.CompareAndSwap(uint32(gateOpen), uint32(m.closedByUs())) {
			crashpoint.Hit("rwmutex.lock.closed")
			return nil
		}
	}
}

// resolveGate opens the gate if a dead process has left it closed. It returns nil when the gate is open.
//
// Preconditions: this goroutine has the writers' mutex.
func (m *RWMutex) resolveGate(op string) error {
	for {
		g := gateWord(m.gate.Load())
		switch {
		case g == gateOpen:
			return nil
		case g.valid() && g.taken() && m.a.Dead(g.participant()):
			if !m.endDead(g) {
				return &dyingError{g}
			}
		case g.valid() && g.taken():
			// Only the process that has the writers' mutex closes the gate, and this process has that mutex.
			return m.fail(op, shmsync.ErrCorrupt, nil, g.String()+", without the writers' mutex")
		default:
			return m.trouble(op, g)
		}
	}
}

// drain waits until no reader has the lock, and then this process holds m. If drain fails, it opens the gate and
// releases the writers' mutex.
//
// Preconditions: this goroutine has the writers' mutex, and has closed the gate.
func (m *RWMutex) drain(ctx context.Context, op string) error {
	err := m.drainGate(ctx, op)
	if err != nil {
		m.releaseWriters()
	}
	return err
}

// drainGate waits until no reader has the lock, and then this process holds m. If drainGate fails, it opens the
// gate and keeps the writers' mutex.
//
// Preconditions: this goroutine has the writers' mutex, and has closed the gate.
func (m *RWMutex) drainGate(ctx context.Context, op string) error {
	for {
		err := m.drained(ctx, op)
		if err == nil && m.gate.CompareAndSwap(uint32(m.closedByUs()), uint32(makeGate(gateHeld, m.name))) {
			break
		}
		if err == nil {
			// Another process has opened the gate, because this process has not run for a while; see
			// checkReaders.
			if err = m.closeGate(op); err == nil {
				continue
			}
		}
		crashpoint.Hit("rwmutex.lock.leaving")
		m.reopen()
		return err
	}
	race.Acquire(m.wrote)
	race.Acquire(m.read)
	crashpoint.Hit("rwmutex.lock.acquired")
	return nil
}

func (m *RWMutex) closedByUs() gateWord { return makeGate(gateClosed, m.name) }

// drained waits until no reader has the lock, or until another process has opened the gate.
//
// It checks the reader words one after the other, and waits at each word until that word shows no hold. That is
// sufficient, because a word gets no new hold while the gate is closed. Its count may still rise for a moment,
// because a reader counts itself before it finds the gate closed and takes the count back.
func (m *RWMutex) drained(ctx context.Context, op string) error {
	// sync(rwmutex.leave): acquire
	at := m.firstReader(1)
	if at == 0 {
		return nil
	}
	if !m.writer.Enter() {
		return m.closed(op)
	}
	defer m.writer.Exit()
	cancel := park.CancelBy(ctx)
	defer cancel.Stop()
	for spun := false; ; {
		next := m.firstReader(at)
		if next == 0 || gateWord(m.gate.Load()) != m.closedByUs() {
			return nil
		}
		spun = spun && next == at
		at = next
		reader, ok := m.readerAt(at)
		if !ok {
			return m.corruptReaders(op)
		}
		if !spun {
			spun = true
			if m.spinWhileRead(reader) {
				continue
			}
		}
		switch m.sleepWhileRead(reader, &cancel) {
		case park.Canceled:
			if m.firstReader(at) == 0 {
				return nil
			}
			return cancel.Err()
		case park.Closed:
			return m.closed(op)
		}
	}
}

// spinWhileRead spins while the participant of the reader word r reads, and reports whether the participant has
// stopped reading.
func (m *RWMutex) spinWhileRead(r slotReaderWord) bool {
	return m.tuning(&m.words.paysWriter).Spin(func() bool { return r.load().reading() == 0 })
}

// sleepWhileRead announces the writer in its wake word, checks the reader's word once more, and sleeps.
func (m *RWMutex) sleepWhileRead(reader slotReaderWord, cancel *park.Cancel) park.Result {
	v := m.wakeWordWriter.Announce()
	crashpoint.Hit("rwmutex.lock.announced")
	// No wake is lost. A reader that leaves changes its word, then finds the gate closed, and only after that checks
	// whether a writer has announced itself.
	w := reader.load()
	if w.reading() == 0 || !m.a.Current(reader.name(w)) || gateWord(m.gate.Load()) != m.closedByUs() {
		return park.Again
	}
	r := m.writer.Sleep(uint32(v), park.SleepSpec{Owner: reader.name(w)}, cancel)
	crashpoint.Hit("rwmutex.lock.woken")
	return r
}

// tryLockSlow is TryLock after the fast path has failed.
func (m *RWMutex) tryLockSlow() bool {
	defer m.opening.serve(m.writers.queue).end()
	if !m.writers.TryLock() {
		return false
	}
	crashpoint.Hit("rwmutex.lock.queued")
	if m.tryDrained("rwmutex.trylock") {
		return true
	}
	m.releaseWriters()
	return false
}

// tryDrained locks m for writing if no reader has the lock, and reports whether it did. If it did not, it leaves
// the gate open.
//
// Preconditions: this goroutine has the writers' mutex.
func (m *RWMutex) tryDrained(op string) bool {
	// Check for readers before closing the gate. So a caller that calls TryLock in a loop does not close the gate
	// each time.
	if m.firstReader(1) != 0 || m.closeGate(op) != nil {
		return false
	}
	if m.firstReader(1) == 0 &&
		m.gate.CompareAndSwap(uint32(m.closedByUs()), uint32(makeGate(gateHeld, m.name))) {
		race.Acquire(m.wrote)
		race.Acquire(m.read)
		crashpoint.Hit("rwmutex.lock.acquired")
		return true
	}
	m.reopen()
	return false
}

// reopen opens the gate that this process has just closed.
func (m *RWMutex) reopen() {
	// sync(rwmutex.gate): release
	if m.gate.CompareAndSwap(uint32(m.closedByUs()), uint32(gateOpen)) {
		m.letIn()
	}
}

// Unlock unlocks m, which this process holds for writing, and lets in the waiting readers. It panics if this
// process does not hold m for writing. If a peer overwrote the lock, it panics with an error that Is ErrCorrupt.
func (m *RWMutex) Unlock() {
	race.ReleaseMerge(m.wrote)
	m.open("Unlock")
}

// Downgrade turns the write hold of this process into a read hold. No writer gets the lock in between, and waiting
// readers are let in. Downgrade panics as Unlock does.
func (m *RWMutex) Downgrade() {
	m.opening.use()
	if g := gateWord(m.gate.Load()); g != makeGate(gateHeld, m.name) {
		m.badUnlock("Downgrade", g)
	}
	race.ReleaseMerge(m.wrote)
	m.mine.Add(uint64(readerOne))
	crashpoint.Hit("rwmutex.downgrade.added")
	defer func() {
		if r := recover(); r != nil {
			m.takeBack()
			panic(r)
		}
	}()
	m.open("Downgrade")
}

// open ends a write hold: it does what openGate does, and then unlocks the writers' mutex. The argument what names the
// call in messages.
func (m *RWMutex) open(what string) {
	// Load these values before the CAS, because the processor executes no later load during the CAS.
	w := m.writers
	own, wake, biased, readers := w.own, w.wake, w.biased, m.wakeWordReaders.Word
	if m.opening.ended.Load() || !m.gate.CompareAndSwap(uint32(makeGate(gateHeld, m.name)), uint32(gateOpen)) {
		m.openGate(what)
	} else {
		crashpoint.Hit("rwmutex.unlock.opened")
		if park.Word(readers.Load()).Announced() {
			m.letIn()
		}
	}
	if !race.Enabled && atomic.LoadUint32(own) == biased {
		if releaseBiased(own, wake) {
			w.loseBias()
		}
		return
	}
	w.Unlock()
}

// openGate opens the gate that this process has closed as a writer, lets waiting readers in, and keeps the writers'
// mutex.
func (m *RWMutex) openGate(what string) {
	m.opening.use()
	// sync(rwmutex.gate): release
	if !m.gate.CompareAndSwap(uint32(makeGate(gateHeld, m.name)), uint32(gateOpen)) {
		m.badUnlock(what, gateWord(m.gate.Load()))
	}
	crashpoint.Hit("rwmutex.unlock.opened")
	m.letIn()
}

// letIn grants the lock to all readers that sleep. Only a process that has the writers' mutex may call letIn: then no
// other process can close the gate before letIn ends, and no reader gets the lock together with a writer. A process
// without the mutex, such as a reaper, must not call letIn, even if the writer is dead. Such a process might be stopped
// inside letIn and go on later, while another writer writes.
//
// Preconditions: this goroutine has the writers' mutex, and has opened the gate.
func (m *RWMutex) letIn() {
	if m.wakeWordReaders.Announced() { // a reader that announces itself later checks the gate before it sleeps
		m.letInAnnounced()
	}
}

// letInAnnounced does what letIn does, after a reader has announced itself.
func (m *RWMutex) letInAnnounced() {
	for _, r := range m.readerWords().words {
		for {
			// If the CAS fails, a call of the participant has begun or ended. A call that begins does not register
			// while the gate is open, so the loop is finite.
			w := r.load()
			if w.waiting() == 0 || r.state.CompareAndSwap(uint64(w), uint64(w.granted())) {
				break
			}
		}
	}
	crashpoint.Hit("rwmutex.unlock.granted")
	m.tuning(&m.words.pays).NoteCPU()
	m.wakeWordReaders.WakeAll()
	crashpoint.Hit("rwmutex.unlock.woken")
}

// badUnlock is called by an Unlock or a Downgrade that finds that this process does not hold m for writing.
func (m *RWMutex) badUnlock(what string, g gateWord) {
	if !g.valid() {
		panic(m.fail("rwmutex.unlock", shmsync.ErrCorrupt, nil, g.String()))
	}
	panic("shmsync: " + what + " of rwmutex " + objectName(m.object) + ", which this process does not hold for writing: it is " + g.String())
}

package prims

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("rwmutex.rlock.tried")
	_ = crashpoint.Register("rwmutex.rlock.acquired")
	_ = crashpoint.Register("rwmutex.rlock.registered")
	_ = crashpoint.Register("rwmutex.rlock.announced")
	_ = crashpoint.Register("rwmutex.rlock.woken")
	_ = crashpoint.Register("rwmutex.rlock.leaving")
	_ = crashpoint.Register("rwmutex.runlock.left")
)

// rlockOrPanic is the slow path of RLock. It must not be inlined in RLock, because then the compiler could not
// inline RLock in its callers.
//
//go:noinline
func (m *RWMutex) rlockOrPanic(tried uint64) {
	if err := m.rlockSlow(nil, tried); err != nil {
		panic(waysOut(err))
	}
}

// rlockSlow continues an RLock whose first try has failed. The try is still counted as a hold. The argument tried is
// the reader word after the try was counted, or 0 if there was no try. ctx may be nil.
func (m *RWMutex) rlockSlow(ctx context.Context, tried uint64) error {
	if err := m.opening.error("rwmutex.rlock"); err != nil {
		if readerWord(tried).generation() != 0 { // the try was counted in the reader word, and not in closedReader
			m.takeBackEnded()
		}
		return err
	}
	if rwmutexHooks {
		m.mine.Add(uint64(readerOne))
		crashpoint.Hit("rwmutex.rlock.tried")
	}
	// sync(rwmutex.gate): acquire
	if g := gateWord(m.gate.Load()); g != gateOpen {
		if !m.readers.Enter() {
			m.takeBack()
			return m.closed("rwmutex.rlock")
		}
		defer m.readers.Exit()
		if g.participant() == m.name {
			if text := m.opening.selfWait(ctx, "RLock", nil); text != "" {
				m.takeBack()
				panic(text)
			}
		}
		r := reader{m: m, cancel: park.CancelBy(ctx)}
		defer r.cancel.Stop() // also if a Repair panics or ends the goroutine
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	race.Acquire(m.wrote)
	crashpoint.Hit("rwmutex.rlock.acquired")
	return nil
}

// TryRLock locks m for reading if that is possible without waiting, and reports whether it did. If it did not,
// State tells why.
func (m *RWMutex) TryRLock() bool {
	m.opening.use()
	for {
		// Check the gate before the try, because a try counts as a reader for a moment. Without this check, a
		// goroutine that calls TryRLock in a loop would keep a writer waiting after the last reader has left.
		if g := gateWord(m.gate.Load()); g != gateOpen {
			if !g.valid() || !g.taken() || !m.a.Dead(g.participant()) || !m.tryMeetDead(g) {
				return false
			}
			continue
		}
		m.mine.Add(uint64(readerOne))
		crashpoint.Hit("rwmutex.rlock.tried")
		// sync(rwmutex.gate): acquire
		if gateWord(m.gate.Load()) == gateOpen {
			race.Acquire(m.wrote)
			return true
		}
		m.takeBack()
		if m.opening.ended.Load() {
			return false // the writer that waited for this try has got the lock and has closed the handle
		}
	}
}

// tryMeetDead opens the gate g of a dead writer, or marks the gate as owner-dead, as the policy says. It returns false
// if the gate stays as it is. Close waits for this call, because the next holder may close the handle before the call
// has returned.
func (m *RWMutex) tryMeetDead(g gateWord) (changed bool) {
	if !m.readers.Enter() {
		return false
	}
	defer m.readers.Exit()
	return m.markOwnerDead(g) || m.tryEndDead(g)
}

// takeBack subtracts the hold that a failed try has added to the reader word.
func (m *RWMutex) takeBack() { m.runlockSlow(m.mine.Add(readerBack)) }

// takeBackEnded does what takeBack does, for a try that was counted while the handle was being closed. The object still
// exists, because Delete refuses while the hold is counted. If this process has left the arena meanwhile, its holds
// have ended, and takeBackEnded changes nothing. takeBackEnded wakes no writer. A writer that waits for the hold finds
// at its next periodic check that there is no hold any more.
func (m *RWMutex) takeBackEnded() {
	for {
		// If the CAS fails, another call has changed the word. So the loop is lock-free.
		w := readerWord(m.mine.Load())
		if w.generation() != m.name.Generation() || w.reading() == 0 || m.mine.CompareAndSwap(uint64(w), uint64(w-readerOne)) {
			return
		}
	}
}

// runlockHooks does what RUnlock does, with the hooks of the race detector and of the crash points.
func (m *RWMutex) runlockHooks() {
	m.opening.use()
	race.ReleaseMerge(m.read)
	// sync(rwmutex.leave): release
	m.runlockSlow(m.mine.Add(readerBack))
}

// runlockSlow continues an RUnlock. The argument left is the reader word after the hold was subtracted.
func (m *RWMutex) runlockSlow(left uint64) {
	w := readerWord(left)
	if m.opening.ended.Load() {
		if w.generation() == 0 { // the word is closedReader, so the RUnlock began after Close
			panic(m.opening.refusal)
		}
		// The writer that waited for this reader has got the lock meanwhile, and has closed the handle.
		return
	}
	crashpoint.Hit("rwmutex.runlock.left")
	if w.reading() == readerMost {
		m.mine.Add(uint64(readerOne))
		m.left() // a writer may have read the wrong count, and may have begun to wait
		panic("shmsync: RUnlock of rwmutex " + objectName(m.object) + ", which this process does not hold for reading")
	}
	if w.reading() == 0 {
		m.left()
	}
}

// left wakes the writer that waits for readers. It is called after the last reader of this process has left. The writer
// may have got the lock meanwhile, and may close the handle.
func (m *RWMutex) left() {
	// The method begin makes Close wait for this call. The function enterLate would do that, too, but it would count
	// the call as one more waiter.
	if m.wakeWordWriter.Announced() && m.begin("rwmutex.runlock") == nil {
		defer m.finish()
		m.wakeWriter()
	}
}

func (m *RWMutex) wakeWriter() {
	m.tuning(&m.words.paysWriter).NoteCPU()
	m.wakeWordWriter.Release()
}

// reader is one call of RLock that has to wait.
type reader struct {
	m      *RWMutex
	cancel park.Cancel
	epoch  uint64 // the epoch of the registry in which this goroutine registered
	dying  bool   // the writer is dead, but a system call of its process may still store data
	exit   goneWait
}

// wait waits until r has a read hold. r has already tried once and found the gate closed; that try is still counted
// as a hold.
func (r *reader) wait(ctx context.Context) error {
	m := r.m
	if err := r.register(); err != nil {
		return err
	}
	for spun, canceled := false, false; ; {
		if r.granted() {
			return nil
		}
		g := gateWord(m.gate.Load())
		if g == gateOpen {
			if in, err := r.enter(); in || err != nil {
				return err
			}
			continue
		}
		if err := m.trouble("rwmutex.rlock", g); err != nil {
			if r.leave() {
				return nil
			}
			if m.repair == nil || !errors.Is(err, shmsync.ErrOwnerDead) {
				return err
			}
			if err := m.recoverBy(ctx, "rwmutex.rlock", m.repair, true); err != nil {
				return err
			}
			m.mine.Add(uint64(readerOne))
			if err := r.register(); err != nil {
				return err
			}
			continue
		}
		if r.dying = m.a.Dead(g.participant()); r.dying && m.markOwnerDead(g) {
			continue
		}
		if r.dying && m.tryEndDead(g) {
			continue
		}
		if canceled {
			// An open gate, and a lock that this call may repair, take precedence over the end of the context.
			if r.leave() {
				return nil
			}
			return r.cancel.Err()
		}
		if !spun && !r.dying {
			spun = true
			if m.spinWhileClosed() {
				continue
			}
		}
		switch r.sleep() {
		case park.Again:
			spun = false
		case park.Canceled:
			canceled = true
		case park.Closed:
			if r.leave() {
				m.takeBack()
			}
			return m.closed("rwmutex.rlock")
		}
	}
}

// sleep announces r in the wake word, checks the gate once more, and sleeps.
func (r *reader) sleep() park.Result {
	m := r.m
	v := m.wakeWordReaders.Announce()
	crashpoint.Hit("rwmutex.rlock.announced")
	// No wake is lost, because the writer first opens the gate, then lets the waiting readers in, and then checks
	// whether a reader has announced itself.
	g := gateWord(m.gate.Load())
	if !g.valid() || !g.taken() || !m.a.Current(g.participant()) && !r.dying || r.maySee() {
		return park.Again
	}
	sleepSpec := park.SleepSpec{Owner: g.participant()}
	if r.dying {
		sleepSpec = park.SleepSpec{Bounded: r.exit.next(), Exact: true}
	}
	res := m.readers.Sleep(uint32(v), sleepSpec, &r.cancel)
	crashpoint.Hit("rwmutex.rlock.woken")
	return res
}

// register counts the goroutine of r as waiting. Until now the goroutine was counted as reading. If there is an error,
// the goroutine is not counted any more.
func (r *reader) register() (err error) {
	m, g := r.m, r.m.registry
	g.Lock()
	full := false
	w := m.change(func(w readerWord) readerWord {
		if full = w.waiting() >= readerWaitMost; full {
			return w - readerOne
		}
		return w.registered()
	})
	if full {
		err = m.fail("rwmutex.rlock", shmsync.ErrNoSpace, nil, fmt.Sprintf("%d goroutines of this process wait to read already", w.waiting()))
	} else {
		g.waiting++
		r.epoch = g.epoch
	}
	g.Unlock()
	crashpoint.Hit("rwmutex.rlock.registered")
	if w.reading() == 0 {
		m.left()
	}
	return err
}

// maySee reports whether r was let in. Unlike the method granted, it does not record that r has noticed this.
func (r *reader) maySee() bool {
	m, g := r.m, r.m.registry
	g.Lock()
	defer g.Unlock()
	m.catchUp(readerWord(m.mine.Load()))
	return g.epoch != r.epoch
}

// granted reports whether r was let in. If so, it records that r has noticed this, and so returns true only once.
func (r *reader) granted() bool {
	m, g := r.m, r.m.registry
	g.Lock()
	defer g.Unlock()
	m.catchUp(readerWord(m.mine.Load()))
	return r.claim()
}

// claim does what the method granted does, for a caller that has already called catchUp.
func (r *reader) claim() bool { // guarded by: registry
	g := r.m.registry
	if g.epoch == r.epoch {
		return false
	}
	g.due--
	return true
}

// enter counts r as a reader, because the caller has found the gate open. If the gate was closed meanwhile, enter
// counts r as waiting again and returns false. The error is that of register.
func (r *reader) enter() (in bool, err error) {
	m, g := r.m, r.m.registry
	g.Lock()
	m.change(func(w readerWord) readerWord {
		if g.epoch != r.epoch {
			return w
		}
		return w.tried()
	})
	if r.claim() {
		g.Unlock()
		return true, nil
	}
	g.waiting--
	g.Unlock()
	crashpoint.Hit("rwmutex.rlock.tried")
	// sync(rwmutex.gate): acquire
	if gateWord(m.gate.Load()) == gateOpen {
		return true, nil
	}
	return false, r.register()
}

// leave ends the wait of r. It returns true if r was let in before that, because r then has a hold.
func (r *reader) leave() bool {
	m, g := r.m, r.m.registry
	crashpoint.Hit("rwmutex.rlock.leaving")
	g.Lock()
	defer g.Unlock()
	m.change(func(w readerWord) readerWord {
		if g.epoch != r.epoch {
			return w
		}
		return w - readerWait
	})
	if r.claim() {
		return true
	}
	g.waiting--
	return false
}

// change applies the function f to the reader word of this process. Before that it calls catchUp, because a writer
// may have let the waiting goroutines in.
func (m *RWMutex) change(f func(readerWord) readerWord) readerWord { // guarded by: registry
	for {
		// If the CAS fails, another call of this process has changed the word, or a writer has let the waiting
		// goroutines in. So with each failure, one of these has made progress.
		w := readerWord(m.mine.Load())
		m.catchUp(w)
		to := f(w)
		if to == w || m.mine.CompareAndSwap(uint64(w), uint64(to)) {
			return to
		}
	}
}

// catchUp updates the registry if the reader word w shows a grant, that is, if a writer has let all waiting goroutines
// in. After a grant, w counts no waiting goroutine although the registry still counts some.
//
// catchUp records each grant separately. A goroutine that was let in has a hold, which keeps writers out. So the next
// grant can follow only after all these goroutines have released their holds or given up. Before another goroutine
// registers for the next grant, it calls catchUp, which records the earlier grant.
func (m *RWMutex) catchUp(w readerWord) { // guarded by: registry
	if g := m.registry; g.waiting != 0 && w.waiting() == 0 {
		g.due += g.waiting
		g.waiting = 0
		g.epoch++
	}
}

// tuning returns the words that control how long a waiter spins.
func (m *RWMutex) tuning(pays *atomic.Uint32) park.Tuning {
	w := m.words.writers
	return park.Tuning{Budget: &w.spin, Pays: pays, LastCPU: &m.words.lastCPU, Slot: m.name.Slot()}
}

// spinWhileClosed spins while the gate is closed, and reports whether the gate has opened.
func (m *RWMutex) spinWhileClosed() bool {
	if m.wakeWordReaders.Announced() {
		return false
	}
	return m.tuning(&m.words.pays).Spin(func() bool {
		return gateWord(m.gate.Load()) == gateOpen || readerWord(m.mine.Load()).waiting() == 0
	})
}

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
	_ = crashpoint.Register("rwmutex.rlock.tried")
	_ = crashpoint.Register("rwmutex.rlock.acquired")
	_ = crashpoint.Register("rwmutex.rlock.registered")
	_ = crashpoint.Register("rwmutex.rlock.announced")
	_ = crashpoint.Register("rwmutex.rlock.woken")
	_ = crashpoint.Register("rwmutex.rlock.leaving")
	_ = crashpoint.Register("rwmutex.runlock.left")
)

// rlockOrPanic is the slow path of RLock. It is not inlined: inside RLock it would keep RLock
// itself from being inlined into its callers.
//
//go:noinline
func (m *RWMutex) rlockOrPanic() {
	if err := m.rlockSlow(nil); err != nil {
		panic(waysOut(err))
	}
}

// rlockSlow is RLock after its first try. That try still counts as a hold. ctx may be nil.
func (m *RWMutex) rlockSlow(ctx context.Context) error {
	if err := m.opening.error("rwmutex.rlock"); err != nil {
		return err // the fast path of a closed handle has counted nothing
	}
	if rwmutexHooks {
		m.mine.Add(uint64(readerOne))
		crashpoint.Hit("rwmutex.rlock.tried")
	}
	// sync(rwmutex.gate): acquire
	if gateWord(m.gate.Load()) != gateOpen {
		if !m.readers.Enter() {
			m.takeBack()
			return m.closed("rwmutex.rlock")
		}
		defer m.readers.Exit()
		r := reader{m: m, cancel: park.CancelBy(ctx)}
		err := r.wait(ctx)
		r.cancel.Stop()
		if err != nil {
			return err
		}
	}
	race.Acquire(m.wrote)
	crashpoint.Hit("rwmutex.rlock.acquired")
	return nil
}

// TryRLock locks m for reading if that is possible without waiting, and reports whether it did.
// State tells why it failed.
func (m *RWMutex) TryRLock() bool {
	m.opening.use()
	for {
		// Look at the gate before the try: a goroutine that tries in a loop must not hide from a
		// writer that the last reader has left.
		if g := gateWord(m.gate.Load()); g != gateOpen {
			if !g.valid() || !g.taken() || !m.a.Dead(g.participant()) || !m.markOwnerDead(g) && !m.tryEndDead(g) {
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
			return false // the writer that waited for this try has closed the handle
		}
	}
}

// takeBack undoes a try.
func (m *RWMutex) takeBack() { m.runlockSlow(m.mine.Add(readerBack)) }

// runlockHooks is RUnlock with its hooks.
func (m *RWMutex) runlockHooks() {
	m.opening.use()
	race.ReleaseMerge(m.read)
	// sync(rwmutex.leave): release
	m.runlockSlow(m.mine.Add(readerBack))
}

// runlockSlow is the rest of RUnlock. left is the reader word after RUnlock has subtracted the hold.
func (m *RWMutex) runlockSlow(left uint64) {
	w := readerWord(left)
	crashpoint.Hit("rwmutex.runlock.left")
	if m.opening.ended.Load() {
		if w.generation() == 0 { // closedReader
			panic(m.opening.refusal)
		}
		// The writer that waited for this reader has seen that it has left, and has closed the handle. The end of the handle
		// wakes other writers.
		return
	}
	if w.reading() == readerMost {
		m.mine.Add(uint64(readerOne))
		m.left() // a writer may have seen the wrong count
		panic("shmsync: RUnlock of rwmutex " + objectName(m.object) + ", which this process does not hold for reading")
	}
	if w.reading() == 0 {
		m.left()
	}
}

// left wakes the writer that waits for this process's last reader to leave.
func (m *RWMutex) left() {
	if m.wakeWordWriter.Announced() {
		m.tuning(&m.words.paysWriter).NoteCPU()
		m.wakeWordWriter.Release()
	}
}

// reader is one blocked call of RLock.
type reader struct {
	m      *RWMutex
	cancel park.Cancel
	epoch  uint64 // the epoch in which it registered
	dying  bool   // the writer is dead and not gone
	exit   goneWait
}

// wait turns a try that found the gate closed into a hold.
func (r *reader) wait(ctx context.Context) error {
	m := r.m
	r.register()
	for spun := false; ; {
		if r.granted() {
			return nil
		}
		g := gateWord(m.gate.Load())
		if g == gateOpen {
			if r.enter() {
				return nil
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
			if err := m.recoverBy(ctx, "rwmutex.rlock", m.repair); err != nil {
				return err
			}
			m.mine.Add(uint64(readerOne))
			r.register()
			continue
		}
		if r.dying = m.a.Dead(g.participant()); r.dying && m.markOwnerDead(g) {
			continue
		}
		if r.dying && m.tryEndDead(g) {
			continue
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
			// An open gate takes precedence over a context that has ended, and a hold that was
			// granted is kept.
			if gateWord(m.gate.Load()) == gateOpen && r.enter() || r.leave() {
				return nil
			}
			return r.cancel.Err()
		case park.Closed:
			if r.leave() {
				m.takeBack()
			}
			return m.closed("rwmutex.rlock")
		}
	}
}

// sleep announces the waiter, checks the gate again, and sleeps.
func (r *reader) sleep() park.Result {
	m := r.m
	v := m.wakeWordReaders.Announce()
	crashpoint.Hit("rwmutex.rlock.announced")
	// The writer opens the gate, grants, and then looks for an announcement.
	g := gateWord(m.gate.Load())
	if !g.valid() || !g.taken() || !m.a.Current(g.participant()) && !r.dying || r.maySee() {
		return park.Again
	}
	sleepSpec := park.SleepSpec{Owner: g.participant()}
	if r.dying {
		sleepSpec = park.SleepSpec{Bounded: r.exit.next()}
	}
	res := m.readers.Sleep(uint32(v), sleepSpec, &r.cancel)
	crashpoint.Hit("rwmutex.rlock.woken")
	return res
}

// register turns a goroutine that tries into one that waits.
func (r *reader) register() {
	m, g := r.m, r.m.registry
	g.Lock()
	w := m.change(readerWord.registered)
	g.waiting++
	r.epoch = g.epoch
	g.Unlock()
	crashpoint.Hit("rwmutex.rlock.registered")
	if w.reading() == 0 {
		m.left()
	}
}

// maySee reports whether r was let in. It changes nothing.
func (r *reader) maySee() bool {
	m, g := r.m, r.m.registry
	g.Lock()
	defer g.Unlock()
	m.catchUp(readerWord(m.mine.Load()))
	return g.epoch != r.epoch
}

// granted reports whether r was let in, and records that r knows. It returns true once.
func (r *reader) granted() bool {
	m, g := r.m, r.m.registry
	g.Lock()
	defer g.Unlock()
	m.catchUp(readerWord(m.mine.Load()))
	return r.claim()
}

// claim is granted without the call of catchUp.
func (r *reader) claim() bool { // guarded by: registry
	g := r.m.registry
	if g.epoch == r.epoch {
		return false
	}
	g.due--
	return true
}

// enter counts r as a reader if the gate is open. It reports false if the gate was closed
// meanwhile; then r is still registered.
func (r *reader) enter() bool {
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
		return true
	}
	g.waiting--
	g.Unlock()
	crashpoint.Hit("rwmutex.rlock.tried")
	// sync(rwmutex.gate): acquire
	if gateWord(m.gate.Load()) == gateOpen {
		return true
	}
	r.register()
	return false
}

// leave ends a wait. It reports true if r was let in before that: then r has a hold.
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

// change applies f to this process's reader word, after it has caught up with a grant.
func (m *RWMutex) change(f func(readerWord) readerWord) readerWord { // guarded by: registry
	for {
		// The loop ends: whenever the CAS fails, a call of this process has come or gone, or a
		// writer has made the one grant of its turn.
		w := readerWord(m.mine.Load())
		m.catchUp(w)
		to := f(w)
		if to == w || m.mine.CompareAndSwap(uint64(w), uint64(to)) {
			return to
		}
	}
}

// catchUp records a grant, if w shows one: a grant lets in all waiting goroutines, so w shows no waiting
// goroutine although the registry has some. There is at most one grant to record. While a goroutine that was
// let in does not know of the grant, its hold keeps writers out, so there is no second grant. A goroutine that
// gives up may let a writer in. A second grant after that is recorded separately, since no goroutine registers
// before catchUp was called.
func (m *RWMutex) catchUp(w readerWord) { // guarded by: registry
	if g := m.registry; g.waiting != 0 && w.waiting() == 0 {
		g.due += g.waiting
		g.waiting = 0
		g.epoch++
	}
}

// tuning steers the spinning of waiters.
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

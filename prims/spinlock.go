package prims

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

// SpinLock is a mutual exclusion lock between processes for critical sections of some tens of instructions.
// Prefer [Mutex]: in no measurement was SpinLock faster by more than the noise, and a SpinLock does not bound
// how long a caller waits. Its only advantage is that it takes less memory. See docs/performance.md.
//
// A process that finds the lock held spins first, even if others wait already. The holder is a process, as with
// a [Mutex]: a goroutine may lock it and another goroutine of the same process unlock it.
//
// A SpinLock promises no order: a newcomer may get the lock before a process that has waited for long. A waiter does
// not spin for ever: after a bounded spin it yields its CPU a few times, and then sleeps until the lock is released or
// its holder dies. A SpinLock takes 128 bytes, a Mutex 192. If critical sections are long, or starvation matters, a
// Mutex is the better choice.
//
// In the terminology of the Go memory model, and across processes: for n < m the n'th call of Unlock
// synchronizes before the m'th call of Lock returns. If a holder dies, its death synchronizes before the call that
// reports the death, and before the next call that gets the lock.
type SpinLock struct {
	// The fast paths use the fields below. The compiler inlines these paths only if they use plain pointers to the
	// words and the functions of package atomic.

	own  *uint32 // the state word
	wake *uint32 // the wake word
	self uint32  // the ID of this participant

	core spinCore
}

// SpinLockOptions says how a SpinLock is created, and what this process does with
// it. A nil *SpinLockOptions means the zero value.
type SpinLockOptions struct {
	// Policy says what happens to the lock when its holder dies; 0 means PolicyReport for a new object, and any
	// policy for an existing one. If Policy is set and the object has another policy, opening fails.
	Policy Policy
	// Repair, if set, is run by Lock and LockContext of this process when they find that a holder died. The call runs
	// Repair as Recover does, and then locks. Repair applies to this handle only and is not stored in the arena.
	Repair func() error
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	// See SpinLock.SetSpin.
	Spin time.Duration
}

var spinKindID = arenakernel.KindOf("SPIN")

const spinVersion = 1

// OpenSpinLock finds the SpinLock of that name in the arena or creates it. An
// empty name makes a fresh anonymous one. It panics if opts.Policy is not a valid
// Policy.
func OpenSpinLock(a *arena.Arena, name string, opts *SpinLockOptions) (*SpinLock, error) {
	return openSpinLock((*arenakernel.Arena)(a), name, opts, false)
}

func openSpinLock(a *arenakernel.Arena, name string, opts *SpinLockOptions, attach bool) (*SpinLock, error) {
	var opt SpinLockOptions
	if opts != nil {
		opt = *opts
	}
	opt.Policy.mustBeValid("spin lock " + strconv.Quote(name))
	if err := opt.Policy.withoutLog("spinlock.open", name, "a SpinLock"); err != nil {
		return nil, err
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: spinKindID, Version: spinVersion, Name: name, Size: uint64(spinBytes),
		Init: func(body []byte) { initSpin(body, opt.Policy, opt.Spin) },
	}, "spinlock.open", newSpinLock(&opt), func(m *SpinLock) string { return m.core.policy.differs(opt.Policy) })
}

// SpinLockAt opens the SpinLock at an offset that another process got from the method Offset.
func SpinLockAt(a *arena.Arena, off arena.Offset) (*SpinLock, error) {
	return handleAt(a, off, "spinlock.open", spinKindID, spinVersion, uint64(spinBytes), newSpinLock(&SpinLockOptions{}))
}

func newSpinLock(opt *SpinLockOptions) func(*arenakernel.Arena, arenakernel.Object) (*SpinLock, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*SpinLock, error) {
		w, err := arenakernel.TryAt[spinWords](a, o.Body)
		if err != nil {
			return nil, err
		}
		l := &SpinLock{own: wordPtr(&w.state), wake: wordPtr(&w.wake), self: uint32(a.Self())}
		l.core.init(a, o, w, "spinlock", "spin lock", opt.Repair)
		l.core.opening.end = l.end
		return l, nil
	}
}

// Lock locks l, and waits until it can. It panics with an *[shmsync.Error]
// when the lock is owner-dead or not recoverable, or when this process closes
// the arena meanwhile.
func (l *SpinLock) Lock() {
	// lin: a Lock takes effect here, or in the CAS of spinCore.take.
	if !race.Enabled && !crashpoint.Enabled && atomic.CompareAndSwapUint32(l.own, 0, l.self) {
		return
	}
	l.core.lockOrPanic()
}

// LockContext locks l, and waits until it can or ctx ends. An error means that this call did not lock l. The
// error is ctx.Err(), or it Is ErrOwnerDead, ErrNotRecoverable, ErrCorrupt or ErrClosed. If the lock is free,
// the call takes it even though ctx has ended.
func (l *SpinLock) LockContext(ctx context.Context) error {
	if !race.Enabled && !crashpoint.Enabled && atomic.CompareAndSwapUint32(l.own, 0, l.self) {
		return nil
	}
	return l.core.lock(ctx)
}

// TryLock locks l if that is possible without waiting, and reports whether it did. State shows why it failed.
func (l *SpinLock) TryLock() bool {
	if !race.Enabled && !crashpoint.Enabled && atomic.CompareAndSwapUint32(l.own, 0, l.self) {
		return true
	}
	return l.core.tryLock()
}

// Unlock unlocks l. It panics if this process does not hold l. If a peer has overwritten the lock, Unlock panics
// with an error that Is ErrCorrupt.
func (l *SpinLock) Unlock() {
	if !race.Enabled && !crashpoint.Enabled {
		wake := l.wake // loaded before the CAS, because a load after it would have to wait until the CAS has ended
		// sync(spinlock.release): release
		if atomic.CompareAndSwapUint32(l.own, l.self, 0) {
			if atomic.LoadUint32(wake)&1 != 0 {
				l.core.passOn()
			}
			return
		}
	}
	l.core.unlock()
}

// Recover makes an owner-dead or not recoverable l usable again: it takes the lock, runs
// repair, and releases the lock. If repair returns an error or panics, l becomes not
// recoverable until a later Recover succeeds, and Recover returns the error. Other callers
// wait while repair runs. If this process dies before repair returns, l is owner-dead again.
//
// If l is neither owner-dead nor not recoverable, Recover waits for the lock, releases it and does not run repair.
// Apart from an error of repair, Recover returns the errors of LockContext except ErrOwnerDead. If repair is nil,
// Recover panics and leaves the lock as it is.
func (l *SpinLock) Recover(repair func() error) error {
	return l.RecoverContext(context.Background(), repair)
}

// RecoverContext is like Recover, but returns ctx.Err() if ctx ends while it waits. If it need not wait, it calls repair
// even though ctx has ended.
func (l *SpinLock) RecoverContext(ctx context.Context, repair func() error) error {
	mustHaveRepair(repair != nil, l.core.what+" "+objectName(l.core.object))
	return l.core.recoverCounted(ctx, repair)
}

// Offset returns the place of the SpinLock in its arena, for SpinLockAt in another process.
func (l *SpinLock) Offset() arena.Offset { return l.core.object.Offset }

// Close closes this handle on the SpinLock, and no other. Calls that wait through it end with an error that Is
// ErrClosed. If this process holds the lock, Close does not unlock it; unlock it through another handle. A second
// Close is an error that Is ErrClosed.
func (l *SpinLock) Close() error { return l.core.close() }

// end makes the fast paths of this handle fail, so that they no longer use the words of the object; see Mutex.end.
func (l *SpinLock) end() {
	l.core.end()
	takeWords(&l.own, &l.wake)
}

// Policy returns what happens to l when its holder dies.
func (l *SpinLock) Policy() Policy { return l.core.policy }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters
// learn the bound from experience; if d is negative, they never spin.
func (l *SpinLock) SetSpin(d time.Duration) {
	l.core.opening.use()
	l.core.words.spin.Store(spinField(d))
}

// Spin returns the value of the last SetSpin.
func (l *SpinLock) Spin() time.Duration {
	l.core.opening.use()
	return spinOf(l.core.words.spin.Load())
}

// SpinLockState is the result of State.
type SpinLockState struct {
	Held    bool              // the lock is held, perhaps by a process that is recovering it
	Owner   *shmsync.Identity // the holder, or the process that died as holder; nil if free or unknown
	Waiting bool              // waiters may be asleep
	Err     error             // why the lock cannot be locked: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word    string            // the state word, rendered for people
}

// State reads l without locking it. The result may be out of date when State returns.
func (l *SpinLock) State() SpinLockState {
	l.core.opening.use()
	w := spinWord(l.core.state.Load())
	owner, err := l.core.verdict(w)
	return SpinLockState{Held: w.held() && err == nil, Owner: owner, Waiting: l.core.next.Announced(), Err: err, Word: w.String()}
}

// String renders the state on one line.
func (l *SpinLock) String() string {
	return fmt.Sprintf("spin lock %s: %s", objectName(l.core.object), l.State().Word)
}

func initSpin(body []byte, p Policy, spin time.Duration) {
	w := spinBody(body)
	w.policy = p.stored()
	w.spin.Store(spinField(spin))
}

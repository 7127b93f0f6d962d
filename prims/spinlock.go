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

// SpinLock is a mutual exclusion lock between processes for critical sections of
// some tens of instructions. Prefer [Mutex]: no measurement has shown SpinLock to be
// faster beyond noise, and SpinLock takes less memory but bounds no wait. See
// docs/performance.md.
//
// A process that finds the lock held spins before it does anything else, also if others
// wait already. Like a [Mutex] it is held by a process: a goroutine may lock it and another
// of the same process unlock it.
//
// It is as unfair as a lock can be: the process that comes at the right moment gets it. It
// does not fight a holder that does not run: after a bounded spin a waiter gives its CPU
// away some times, and then sleeps until the lock is released or its holder dies. A
// SpinLock takes 128 bytes where a Mutex takes 192. Where sections are long, or starving
// matters, a Mutex is the better choice.
//
// In the terminology of the Go memory model, and across processes: for n < m the n'th call
// of Unlock synchronizes before the m'th call of Lock returns. A release by the death of its
// holder synchronizes before the call that reports it, and before the call that gets the
// lock because of it.
type SpinLock struct {
	// The fast paths fit the compiler's budget for inlining only with plain
	// pointers to their words and the functions of package atomic.

	own  *uint32 // the state word
	wake *uint32 // the wake word
	self uint32  // our name

	core spinCore
}

// SpinLockOptions says how a SpinLock is created, and what this process does with
// it. A nil *SpinLockOptions means the zero value.
type SpinLockOptions struct {
	// Policy is what becomes of the lock when its holder dies; 0 means PolicyReport for a
	// new object, and any policy for one that exists. If it is set and the object has
	// another policy, opening fails.
	Policy Policy
	// Repair, if set, is called by this process's Lock and LockContext when
	// they meet the death of a holder, as by Recover; then they go on. It is
	// this handle's own and not stored.
	Repair func() error
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from what has paid off; if it is negative, they never spin.
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

// SpinLockAt opens the SpinLock at an offset. Another process got the offset from the method
// Offset.
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

// LockContext locks l, and waits until it can or ctx ends. An error means that
// l is not held: ctx.Err(), or an error that Is ErrOwnerDead or
// ErrNotRecoverable by the policy of l, ErrCorrupt, or ErrClosed. A lock that
// is free is taken without a look at ctx.
func (l *SpinLock) LockContext(ctx context.Context) error {
	if !race.Enabled && !crashpoint.Enabled && atomic.CompareAndSwapUint32(l.own, 0, l.self) {
		return nil
	}
	return l.core.lock(ctx)
}

// TryLock locks l if that is possible without waiting, and reports whether it
// did. State tells why not.
func (l *SpinLock) TryLock() bool {
	if !race.Enabled && !crashpoint.Enabled && atomic.CompareAndSwapUint32(l.own, 0, l.self) {
		return true
	}
	return l.core.tryLock()
}

// Unlock unlocks l. It panics when this process does not hold l, and with an
// error that Is ErrCorrupt when a peer overwrote the lock.
func (l *SpinLock) Unlock() {
	if !race.Enabled && !crashpoint.Enabled {
		wake := l.wake // loaded here, since nothing is loaded while the CAS is under way
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
// Recover of a healthy lock waits for it, releases it and does not run repair.
// Its own errors are those of LockContext, ErrOwnerDead excepted. It panics when
// repair is nil, and leaves the lock as it is.
func (l *SpinLock) Recover(repair func() error) error {
	return l.RecoverContext(context.Background(), repair)
}

// RecoverContext is Recover that ends with ctx.Err() when ctx ends before repair is called.
func (l *SpinLock) RecoverContext(ctx context.Context, repair func() error) error {
	mustHaveRepair(repair != nil, l.core.what+" "+objectName(l.core.object))
	return l.core.recover(ctx, repair)
}

// Offset is where the SpinLock lies in its arena, for SpinLockAt in another
// process.
func (l *SpinLock) Offset() arena.Offset { return l.core.object.Offset }

// Close closes the handle, and no other handle on the SpinLock. Calls that wait by it end
// with an error that Is ErrClosed. Holds of this process stay, and are given back
// through another handle. A second Close is an error that Is ErrClosed.
func (l *SpinLock) Close() error { return l.core.close() }

// end takes the words away from the fast paths, as Mutex.end does.
func (l *SpinLock) end() {
	l.core.end()
	takeWords(&l.own, &l.wake)
}

// Policy is what becomes of l when its holder dies.
func (l *SpinLock) Policy() Policy { return l.core.policy }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, they
// learn the bound; if d is negative, they never spin.
func (l *SpinLock) SetSpin(d time.Duration) {
	l.core.opening.use()
	l.core.words.spin.Store(spinField(d))
}

// Spin is what SetSpin set.
func (l *SpinLock) Spin() time.Duration {
	l.core.opening.use()
	return spinOf(l.core.words.spin.Load())
}

// SpinLockState is what State tells.
type SpinLockState struct {
	Held    bool              // it is held, also by a recoverer
	Owner   *shmsync.Identity // its holder, or the process whose death left it; nil when free or unknown
	Waiting bool              // there may be waiters asleep
	Err     error             // why it cannot be locked: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word    string            // the state word in words
}

// State reads l without locking it. The answer may be out of date
// when it returns.
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

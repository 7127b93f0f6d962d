package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("rwspinlock.rlock.counted")
	_ = crashpoint.Register("rwspinlock.rlock.acquired")
	_ = crashpoint.Register("rwspinlock.runlock.before_release")
	_ = crashpoint.Register("rwspinlock.runlock.before_wake")
)

// RLock locks l for reading, and waits until that is possible. It panics with an *[shmsync.Error] if the lock is
// owner-dead or not recoverable, or if this process closes the arena while the call waits. It also panics if this
// process has 2^30-1 holds for reading already.
func (l *RWSpinLock) RLock() {
	if l.tryRLockFast() {
		return
	}
	if err := l.rlock(nil); err != nil {
		panic(waysOut(err))
	}
}

// RLockContext locks l for reading, and waits until that is possible or ctx ends. An error means that l is not
// held. The errors are those of LockContext. If the lock lets readers in, the call takes it even though ctx has
// ended.
func (l *RWSpinLock) RLockContext(ctx context.Context) error {
	if l.tryRLockFast() {
		return nil
	}
	return l.rlock(ctx)
}

// TryRLock locks l for reading if that is possible without waiting, and reports whether it did. If it did not,
// State tells why. If another goroutine calls TryLock at the same moment, TryRLock may fail although the lock is
// free.
func (l *RWSpinLock) TryRLock() bool {
	l.core.opening.use()
	if l.tryRLockFast() {
		return true
	}
	if !l.core.try(spinRead) {
		return false
	}
	l.rlocked()
	return true
}

// RUnlock releases a hold for reading. It panics if this process has no hold for reading. The lock only counts
// the holds of a process, so it does not notice if the wrong goroutine calls RUnlock.
func (l *RWSpinLock) RUnlock() {
	l.core.opening.use()
	race.ReleaseMerge(l.readKey)
	crashpoint.Hit("rwspinlock.runlock.before_release")
	if !l.exit() {
		panic("shmsync: RUnlock of " + l.core.what + " " + objectName(l.core.object) +
			", which this process does not hold for reading: it has " + rwSpinCount(l.mine.Load()).String())
	}
}

func (l *RWSpinLock) rlock(ctx context.Context) error {
	err := l.core.wait(ctx, spinRead, true)
	if err == nil {
		l.rlocked()
	}
	return err
}

// rlocked reports the new hold to the race detector, and to tests.
func (l *RWSpinLock) rlocked() {
	race.Acquire(l.core.key)
	crashpoint.Hit("rwspinlock.rlock.acquired")
}

func (l *RWSpinLock) tryRLockFast() bool {
	if race.Enabled || crashpoint.Enabled || atomic.LoadUint32(l.state) != 0 {
		return false
	}
	in, _ := l.enter()
	return in
}

// enter counts one more hold for reading, unless a process has the lock exclusively.
//
//	reader                          writer
//	counts itself                   stores its ID in the state word
//	reads the state word            reads the counts
//
// In every order of these four steps, the reader sees the writer, or the writer sees the reader. If the reader read the
// state word before it counts itself, both could get the lock.
func (l *RWSpinLock) enter() (in bool, err error) {
	if err := l.count(); err != nil {
		return false, err
	}
	crashpoint.Hit("rwspinlock.rlock.counted")
	// lin: an RLock takes effect here.
	// sync(spinlock.release): acquire
	if atomic.LoadUint32(l.state) == 0 {
		return true, nil
	}
	l.exit()
	return false, nil
}

// count adds one hold of this process to its count of readers.
func (l *RWSpinLock) count() error {
	for {
		w := rwSpinCount(l.mine.Load())
		next, ok := makeRWSpinCount(l.core.name, 1), true
		if w != 0 { // if w is 0, the variable next is right already
			next, ok = w.plus(l.core.name)
		}
		if !ok {
			return l.noRoom(w)
		}
		// Only goroutines of this process change the word. If the CAS fails, another goroutine of this process has
		// succeeded. So the loop is lock-free.
		if l.mine.CompareAndSwap(uint64(w), uint64(next)) {
			return nil
		}
	}
}

// noRoom returns the error for a count w that cannot be incremented. If the reason is that the process has too many
// holds, noRoom panics.
func (l *RWSpinLock) noRoom(w rwSpinCount) error {
	if w.participant() == l.core.name && w.holds() == rwSpinMost && w.validIn(l.core.name.Slot()) {
		panic("shmsync: RLock of " + l.core.what + " " + objectName(l.core.object) + ": this process holds it " + w.String() + ", and cannot more often")
	}
	return l.core.fail("rlock", shmsync.ErrCorrupt, nil, l.corruptCount(l.core.name.Slot(), w))
}

// wakeDrained wakes a writer that waits for readers to leave, after the last reader of this process has left.
func (l *RWSpinLock) wakeDrained() {
	crashpoint.Hit("rwspinlock.runlock.before_wake")
	if enterLate(l.drainQueue) {
		defer l.drainQueue.Exit()
		l.drained.WakeAll()
	}
}

// exit removes one hold of this process. If it was the last hold, exit wakes a writer that waits for readers to
// leave. If this process has no hold, exit returns false.
func (l *RWSpinLock) exit() bool {
	for {
		w := rwSpinCount(l.mine.Load())
		next, ok := rwSpinCount(0), true
		if w != makeRWSpinCount(l.core.name, 1) { // if this is the only hold, the variable next is right already
			next, ok = w.minus(l.core.name)
		}
		if !ok {
			return false
		}
		// sync(rwspinlock.drain): release
		if !l.mine.CompareAndSwap(uint64(w), uint64(next)) {
			continue
		}
		if next == 0 && l.drained.Announced() {
			l.wakeDrained()
		}
		return true
	}
}

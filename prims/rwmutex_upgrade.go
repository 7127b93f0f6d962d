package prims

import (
	"context"
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("rwmutex.upgradable.acquired")
	_ = crashpoint.Register("rwmutex.upgradable.reader_added")
)

// These are the states of readerRegistry.upgradable. In the words of the lock, an upgradable hold looks the same as
// a writer between two steps of Lock or Unlock. So each process remembers whether it has the upgradable hold, and
// detects mistakes of its callers in this way.
const (
	upgradableNot       = iota // this process has no upgradable hold
	upgradableHeld             // this process has the upgradable hold
	upgradableUpgrading        // a call of Upgrade or TryUpgrade is under way
)

// LockUpgradable locks m for reading, with the right to write before any other process. It waits for writers and
// for other upgradable holds. Readers can lock and unlock m during the hold. LockUpgradable panics as Lock does.
func (m *RWMutex) LockUpgradable() {
	if err := m.lockUpgradable(nil); err != nil {
		panic(err)
	}
}

// LockUpgradableContext is like LockUpgradable, but ends when ctx ends. An error means that m is not held. The
// errors are those of LockContext.
func (m *RWMutex) LockUpgradableContext(ctx context.Context) error { return m.lockUpgradable(ctx) }

func (m *RWMutex) lockUpgradable(ctx context.Context) error {
	const op = "rwmutex.lockupgradable"
	if err := m.begin(op); err != nil {
		return err
	}
	defer m.finish() // Close waits for this, so it also waits for a Repair
	for {
		err := m.lockUpgradableOnce(ctx, op)
		if m.repair == nil || !errors.Is(err, shmsync.ErrOwnerDead) {
			return waysOutOf(ctx, err)
		}
		if err := m.recoverBy(ctx, op, m.repair, true); err != nil {
			return err
		}
	}
}

// lockUpgradableOnce does what the method lockUpgradable does, but does not call the function Repair of the
// options.
func (m *RWMutex) lockUpgradableOnce(ctx context.Context, op string) error {
	if err := m.enqueue(ctx, op); err != nil {
		return err
	}
	if held, err := m.untilResolved(ctx, op, m.resolveGate); err != nil {
		if held {
			m.releaseWriters()
		}
		return err
	}
	m.becomeUpgradable()
	return nil
}

// becomeUpgradable begins an upgradable hold.
//
// Preconditions: this goroutine has the writers' mutex, and the gate is open. The gate stays open, because only the
// process that has the mutex closes it.
func (m *RWMutex) becomeUpgradable() {
	m.registry.upgradable.Store(upgradableHeld)
	race.Acquire(m.wrote)
	crashpoint.Hit("rwmutex.upgradable.acquired")
}

// TryLockUpgradable does what LockUpgradable does if that is possible without waiting, and reports whether it did.
// If it did not, State tells why.
func (m *RWMutex) TryLockUpgradable() bool {
	defer m.opening.serve(m.writers.queue).end()
	if !m.writers.TryLock() {
		return false
	}
	if m.resolveGate("rwmutex.trylockupgradable") != nil {
		m.releaseWriters()
		return false
	}
	m.becomeUpgradable()
	return true
}

// UnlockUpgradable releases the upgradable hold of this process. It panics if this process has no upgradable hold.
func (m *RWMutex) UnlockUpgradable() {
	m.endUpgradable("UnlockUpgradable", upgradableNot)
	m.writers.Unlock()
}

// endUpgradable ends the upgradable hold of this process, and sets the field upgradable to the parameter next. If
// there is no such hold, it panics. The parameter what names the call in the message.
func (m *RWMutex) endUpgradable(what string, next uint32) {
	m.opening.use()
	if !m.registry.upgradable.CompareAndSwap(upgradableHeld, next) {
		panic("shmsync: " + what + " of rwmutex " + objectName(m.object) +
			", which this process does not hold upgradable: its gate is " + gateWord(m.gate.Load()).String())
	}
}

// Upgrade turns the upgradable hold of this process into a write hold, and waits until the readers have left. No
// writer gets the lock in between, and no new reader gets it while Upgrade waits. Upgrade panics if this process
// has no upgradable hold. If the lock is corrupt, or if this process closes the arena meanwhile, it panics with an
// *[shmsync.Error].
//
// A goroutine that also holds m for reading must not call Upgrade, because it would wait for itself.
func (m *RWMutex) Upgrade() {
	if err := m.upgrade(nil); err != nil {
		panic(err)
	}
}

// UpgradeContext is like Upgrade, but ends when ctx ends. An error means that this process still has its upgradable
// hold, and that readers can lock m again. The error is ctx.Err(), or it Is ErrCorrupt or ErrClosed. If there is no
// reader, the call ignores ctx.
func (m *RWMutex) UpgradeContext(ctx context.Context) error { return m.upgrade(ctx) }

func (m *RWMutex) upgrade(ctx context.Context) error {
	const op = "rwmutex.upgrade"
	// begin makes Close wait for this call, because a handle that is opened after Close must find the gate open; see
	// knowUpgradable.
	if err := m.begin(op); err != nil {
		return err
	}
	defer m.finish()
	m.endUpgradable("Upgrade", upgradableUpgrading)
	err := m.closeGate(op)
	if err == nil {
		err = m.drainGate(ctx, op)
	}
	if err != nil {
		m.registry.upgradable.Store(upgradableHeld)
		return err
	}
	m.registry.upgradable.Store(upgradableNot)
	return nil
}

// TryUpgrade turns the upgradable hold of this process into a write hold if no reader has the lock, and reports
// whether it did. Otherwise the hold stays upgradable. TryUpgrade panics if this process has no upgradable hold.
func (m *RWMutex) TryUpgrade() bool {
	const op = "rwmutex.tryupgrade"
	m.opening.use()
	if m.begin(op) != nil { // see upgrade
		return false
	}
	defer m.finish()
	m.endUpgradable("TryUpgrade", upgradableUpgrading)
	if m.tryDrained(op) {
		m.registry.upgradable.Store(upgradableNot)
		return true
	}
	m.registry.upgradable.Store(upgradableHeld)
	return false
}

// DowngradeToUpgradable turns the write hold of this process into an upgradable hold. Waiting readers are let in,
// and no writer gets the lock in between. DowngradeToUpgradable panics as Unlock does.
func (m *RWMutex) DowngradeToUpgradable() {
	race.ReleaseMerge(m.wrote)
	m.openGate("DowngradeToUpgradable")
	m.registry.upgradable.Store(upgradableHeld)
	crashpoint.Hit("rwmutex.upgradable.acquired")
}

// DowngradeToRead turns the upgradable hold of this process into a read hold. No writer gets the lock in between.
// DowngradeToRead panics as UnlockUpgradable does.
func (m *RWMutex) DowngradeToRead() {
	m.endUpgradable("DowngradeToRead", upgradableNot)
	// Count the reader before the writers' mutex is released. The next writer takes the mutex after that, so it
	// sees the reader.
	m.mine.Add(uint64(readerOne))
	crashpoint.Hit("rwmutex.upgradable.reader_added")
	m.writers.Unlock()
}

// knowUpgradable checks whether an earlier handle of this process has left an upgradable hold. It does so only for
// the first handle, when no other handle is open and no call is under way. At that time, this process has the
// writers' mutex only for such a hold, or because one of its reapers rolls back.
func (m *RWMutex) knowUpgradable() {
	r := m.registry
	r.Lock()
	defer r.Unlock()
	if r.known {
		return
	}
	r.known = true
	rollingBack.Lock()
	defer rollingBack.Unlock()
	q := ownerWord(m.words.writers.owner.Load())
	if gateWord(m.gate.Load()) == gateOpen && q.held() && q.participant() == m.name &&
		!rollingBack.of[rolledBack{m.a.Segment(), m.object.Offset}] {
		r.upgradable.Store(upgradableHeld)
	}
}

// upgrader returns the living participant that has the upgradable hold, or 0. It reads the words of the lock, where
// a writer between two steps of Lock or Unlock looks the same as an upgradable hold.
func (m *RWMutex) upgrader() arenakernel.ParticipantID {
	q := ownerWord(m.words.writers.owner.Load())
	if gateWord(m.gate.Load()) != gateOpen || !q.held() || !m.a.Current(q.participant()) {
		return 0
	}
	return q.participant()
}

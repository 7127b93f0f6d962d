package prims

import (
	"context"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var _ = crashpoint.Register("rwspinlock.downgrade.counted")

// LockUpgradable locks l for upgrade, and waits until that is possible. Readers that have the lock keep it, and new
// readers wait. LockUpgradable panics as Lock does.
func (l *RWSpinLock) LockUpgradable() {
	if err := l.lockUpgradable(nil); err != nil {
		panic(waysOut(err))
	}
}

// LockUpgradableContext locks l for upgrade, and waits until that is possible or ctx ends. An error means that l is
// not held. The errors are those of LockContext.
func (l *RWSpinLock) LockUpgradableContext(ctx context.Context) error { return l.lockUpgradable(ctx) }

// TryLockUpgradable locks l for upgrade if that is possible without waiting, and reports whether it did. If it did
// not, State tells why.
func (l *RWSpinLock) TryLockUpgradable() bool {
	l.core.opening.use()
	return l.tryUpgradable()
}

// tryUpgradable does what TryLockUpgradable does, for a call that checks by itself whether the handle is closed.
func (l *RWSpinLock) tryUpgradable() bool {
	if !l.core.try(spinUpgrade) {
		return false
	}
	race.Acquire(l.core.key)
	return true
}

func (l *RWSpinLock) lockUpgradable(ctx context.Context) error {
	if err := l.core.opening.error("rwspinlock.lock"); err != nil {
		return err
	}
	if l.tryUpgradable() {
		return nil
	}
	err := l.core.wait(ctx, spinUpgrade, true)
	if err == nil {
		race.Acquire(l.core.key)
	}
	return err
}

// UnlockUpgradable releases the hold for upgrade that this process has on l. It panics as Unlock does.
func (l *RWSpinLock) UnlockUpgradable() {
	l.core.opening.use()
	l.core.release("UnlockUpgradable", spinUpgrade, spinFree)
}

// Upgrade turns a hold for upgrade into a hold for writing, and waits until the readers have left. It panics if
// this process does not hold l for upgrade. If this process closes the arena meanwhile, it panics with an
// *[shmsync.Error].
func (l *RWSpinLock) Upgrade() {
	if err := l.UpgradeContext(context.Background()); err != nil {
		panic(err)
	}
}

// UpgradeContext is like Upgrade, but ends when ctx ends. An error means that l is still held for upgrade. The
// error is ctx.Err(), or it Is ErrClosed or ErrCorrupt.
func (l *RWSpinLock) UpgradeContext(ctx context.Context) error {
	if err := l.core.opening.error("rwspinlock.upgrade"); err != nil {
		return err
	}
	// After begin, Close of the arena waits until this call has returned. Otherwise Close would end the hold.
	if !l.core.begin() {
		return l.core.fail("upgrade", shmsync.ErrClosed, nil, closedHandle)
	}
	defer l.core.finish()
	d := drainForUpgrade(l.core.name)
	if spinWord(l.core.state.Load()) != d.from {
		l.core.notHeld("Upgrade")
	}
	if err := l.drain(ctx, d); err != nil {
		return err
	}
	race.Acquire(l.readKey)
	return nil
}

// TryUpgrade turns a hold for upgrade into a hold for writing if no reader has the lock, and reports whether it
// did. Otherwise the hold remains a hold for upgrade. A reader that has counted itself, and has not yet found that
// it must wait, is also treated as having the lock. TryUpgrade panics if this process does not hold l for upgrade.
func (l *RWSpinLock) TryUpgrade() bool {
	l.core.opening.use()
	d := drainForUpgrade(l.core.name)
	if spinWord(l.core.state.Load()) != d.from {
		l.core.notHeld("TryUpgrade")
	}
	if who, err := l.reader(); who != 0 || err != nil || l.turn(d.from, d.to) != nil {
		return false
	}
	race.Acquire(l.readKey)
	return true
}

// Downgrade turns a hold for writing into a hold for reading, and lets other readers in. It panics as Unlock does.
func (l *RWSpinLock) Downgrade() {
	l.core.opening.use()
	l.becomeReader("Downgrade", spinHeld)
}

// DowngradeToRead turns a hold for upgrade into a hold for reading, and lets other readers in. It panics as
// UnlockUpgradable does.
func (l *RWSpinLock) DowngradeToRead() {
	l.core.opening.use()
	l.becomeReader("DowngradeToRead", spinUpgrade)
}

// DowngradeToUpgradable turns a hold for writing into a hold for upgrade. No other process gets a hold in between.
// DowngradeToUpgradable panics as Unlock does.
func (l *RWSpinLock) DowngradeToUpgradable() {
	l.core.opening.use()
	l.core.release("DowngradeToUpgradable", spinHeld, makeSpin(spinUpgrade, l.core.name))
}

// becomeReader replaces the present hold by a hold for reading. It counts the new hold before it releases the
// old one, so that no writer gets the lock in between. If the process dies between the two steps, it has both holds,
// and its reaper takes both back.
func (l *RWSpinLock) becomeReader(verb string, from spinKind) {
	if spinWord(l.core.state.Load()) != makeSpin(from, l.core.name) {
		l.core.notHeld(verb)
	}
	if err := l.count(); err != nil {
		panic(err)
	}
	crashpoint.Hit("rwspinlock.downgrade.counted")
	l.core.release(verb, from, spinFree)
}

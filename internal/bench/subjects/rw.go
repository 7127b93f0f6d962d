//go:build linux

package subjects

import (
	"context"
	"fmt"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/prims"
)

// rwSubjects are the reader/writer locks and the spin locks of the library.
var rwSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "rwmutex", Segment: newArena, Open: openRWMutex,
		Brief:     []string{"uncontended", "crash", "readers", "rw"},
		Scenarios: []string{"uncontended", "lock", "crash", "idle", "readers", "rw"}},
	{By: bench.Library, Prim: "rwmutex-read", Segment: newArena, Open: openReadPairs, Scenarios: []string{"uncontended"}},
	{By: bench.Library, Prim: "rwmutex-upgradable", Segment: newArena, Open: openUpgradablePairs(openRWMutex), Brief: []string{}, Scenarios: []string{"uncontended"}},
	{By: bench.Library, Prim: "rwmutex-upgrade", Segment: newArena, Open: openUpgradePairs(openRWMutex), Brief: []string{}, Scenarios: []string{"uncontended"}},
	{By: bench.Library, Prim: "spinlock", Segment: newArena, Open: openSpinLock,
		Brief: []string{"uncontended"}, Scenarios: []string{"uncontended", "lock"}},
	{By: bench.Library, Prim: "rwspinlock", Segment: newArena, Open: openRWSpinLock,
		Brief: []string{"readers", "rw"}, Scenarios: []string{"uncontended", "readers", "rw"}},
	{By: bench.Library, Prim: "rwspinlock-read", Segment: newArena, Open: openSpinReadPairs, Brief: []string{}, Scenarios: []string{"uncontended"}},
	{By: bench.Library, Prim: "rwspinlock-upgradable", Segment: newArena, Open: openUpgradablePairs(openRWSpinLock), Brief: []string{}, Scenarios: []string{"uncontended"}},
	{By: bench.Library, Prim: "rwspinlock-upgrade", Segment: newArena, Open: openUpgradePairs(openRWSpinLock), Brief: []string{}, Scenarios: []string{"uncontended"}},
}

// sharedLock is the interface of those locks of the library that several readers can hold at the same time.
type sharedLock interface {
	bench.Locker
	RLock()
	RUnlock()
	TryLock() bool
	LockContext(context.Context) error
	RecoverContext(context.Context, func() error) error
}

// rwLock gives a sharedLock the methods that the scenarios call.
type rwLock struct{ sharedLock }

func openRWMutex(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	if err := awaitFence(a); err != nil {
		return nil, err
	}
	m, err := prims.OpenRWMutex(a, "rwmutex", nil)
	if err != nil {
		return nil, err
	}
	return rwMutex{rwLock{m}, m}, nil
}

func openRWSpinLock(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	l, err := prims.OpenRWSpinLock(a, "rwspinlock", nil)
	return rwSpinLock{rwLock{l}, l}, err
}

func (l rwLock) ReadPairs(n int, guarded *uint64) (torn int) {
	for range n {
		l.RLock()
		if *guarded != 0 {
			torn++
		}
		l.RUnlock()
	}
	return torn
}

// Inherit waits until the owner has died and becomes the owner through RecoverContext, as mutex.Inherit does.
func (l rwLock) Inherit() (bench.Succession, error) { return inherit(l) }

// rwMutex is a prims.RWMutex whose loops call its methods directly, so that the compiler can inline the calls.
type rwMutex struct {
	rwLock
	m *prims.RWMutex
}

func (l rwMutex) Pairs(n int, counter *uint64) {
	for range n {
		l.m.Lock()
		*counter++
		l.m.Unlock()
	}
}

func (l rwMutex) ReadPairs(n int, guarded *uint64) (torn int) {
	for range n {
		l.m.RLock()
		if *guarded != 0 {
			torn++
		}
		l.m.RUnlock()
	}
	return torn
}

// readPairs is a lock that the uncontended scenario locks and unlocks for reading. This scenario has only one thread,
// so the thread may increment the counter without an exclusive hold.
type readPairs struct{ *prims.RWMutex }

func openReadPairs(w *bench.Worker, thread int) (any, error) {
	v, err := openRWMutex(w, thread)
	if err != nil {
		return nil, err
	}
	return readPairs{v.(rwMutex).m}, nil
}

func (p readPairs) Pairs(n int, counter *uint64) {
	for range n {
		p.RLock()
		*counter++
		p.RUnlock()
	}
}

// rwSpinLock is a prims.RWSpinLock whose loops call its methods directly, so that the compiler can inline the calls.
type rwSpinLock struct {
	rwLock
	l *prims.RWSpinLock
}

func (l rwSpinLock) Pairs(n int, counter *uint64) {
	for range n {
		l.l.Lock()
		*counter++
		l.l.Unlock()
	}
}

func (l rwSpinLock) ReadPairs(n int, guarded *uint64) (torn int) {
	for range n {
		l.l.RLock()
		if *guarded != 0 {
			torn++
		}
		l.l.RUnlock()
	}
	return torn
}

// spinReadPairs does the same as readPairs, for an RWSpinLock.
type spinReadPairs struct{ *prims.RWSpinLock }

func openSpinReadPairs(w *bench.Worker, thread int) (any, error) {
	v, err := openRWSpinLock(w, thread)
	if err != nil {
		return nil, err
	}
	return spinReadPairs{v.(rwSpinLock).l}, nil
}

func (p spinReadPairs) Pairs(n int, counter *uint64) {
	for range n {
		p.RLock()
		*counter++
		p.RUnlock()
	}
}

// upgrader has the methods of an RWMutex or an RWSpinLock for the upgradable mode.
type upgrader struct {
	lock, upgrade, unlock func()
}

// openUpgrader calls the function open, and returns the opened lock as an upgrader. The result unlockWrite releases the
// lock after an upgrade.
func openUpgrader(open func(w *bench.Worker, thread int) (any, error), w *bench.Worker, thread int) (u upgrader, unlockWrite func(), err error) {
	v, err := open(w, thread)
	if err != nil {
		return upgrader{}, nil, err
	}
	switch l := v.(type) {
	case rwMutex:
		return upgrader{l.m.LockUpgradable, l.m.Upgrade, l.m.UnlockUpgradable}, l.m.Unlock, nil
	case rwSpinLock:
		return upgrader{l.l.LockUpgradable, l.l.Upgrade, l.l.UnlockUpgradable}, l.l.Unlock, nil
	}
	return upgrader{}, nil, fmt.Errorf("%T cannot be held upgradable", v)
}

// upgradablePairs is a lock that the uncontended scenario locks and unlocks in the upgradable mode.
type upgradablePairs struct{ upgrader }

func openUpgradablePairs(open func(w *bench.Worker, thread int) (any, error)) func(w *bench.Worker, thread int) (any, error) {
	return func(w *bench.Worker, thread int) (any, error) {
		u, _, err := openUpgrader(open, w, thread)
		return upgradablePairs{u}, err
	}
}

func (p upgradablePairs) Pairs(n int, counter *uint64) {
	for range n {
		p.lock()
		*counter++
		p.unlock()
	}
}

// upgradePairs is a lock that the uncontended scenario locks in the upgradable mode, upgrades, and unlocks.
type upgradePairs struct{ upgrader }

func openUpgradePairs(open func(w *bench.Worker, thread int) (any, error)) func(w *bench.Worker, thread int) (any, error) {
	return func(w *bench.Worker, thread int) (any, error) {
		u, unlock, err := openUpgrader(open, w, thread)
		u.unlock = unlock
		return upgradePairs{u}, err
	}
}

func (p upgradePairs) Pairs(n int, counter *uint64) {
	for range n {
		p.lock()
		p.upgrade()
		*counter++
		p.unlock()
	}
}

type spinLock struct{ *prims.SpinLock }

func openSpinLock(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	l, err := prims.OpenSpinLock(a, "spinlock", nil)
	return spinLock{l}, err
}

func (l spinLock) Pairs(n int, counter *uint64) {
	for range n {
		l.Lock()
		*counter++
		l.Unlock()
	}
}

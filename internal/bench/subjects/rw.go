//go:build linux

package subjects

import (
	"context"
	"fmt"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/prims"
)

// rwSubjects are the library's reader/writer locks, and its spin locks. Spin locks are not measured on one CPU, where
// they make no sense.
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

// sharedLock is the interface of the library's locks that readers can share.
type sharedLock interface {
	bench.Locker
	RLock()
	RUnlock()
	TryLock() bool
	LockContext(context.Context) error
	RecoverContext(context.Context, func() error) error
}

// rwLock adapts a sharedLock to the cells.
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

// Inherit waits for the owner's death and becomes the owner through Recover, as mutex.Inherit does.
func (l rwLock) Inherit() (bench.Succession, error) { return inherit(l) }

// rwMutex has its own loops, so that the calls are direct and can be inlined.
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

// readPairs is a lock whose pairs in an uncontended cell are RLock and RUnlock. There is no other thread, so they may
// count without an exclusive lock.
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

// rwSpinLock has its own loops, so that the calls are direct and can be inlined.
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

// upgrader is a lock with upgradable holds. It calls the methods through variables, so that it serves both kinds of
// lock.
type upgrader struct {
	lock, upgrade, unlock func()
}

// openUpgrader calls the function open to open a lock, and returns the lock as an upgrader. unlockWrite releases a
// hold that was upgraded.
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

// upgradablePairs is a lock whose pairs in an uncontended cell begin and end an upgradable hold.
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

// upgradePairs is a lock whose pairs in an uncontended cell also upgrade the hold.
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

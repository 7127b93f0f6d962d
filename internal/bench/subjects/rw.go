//go:build linux

package subjects

import (
	"context"
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/prims"
)

// rwSubjects are the library's locks with readers, and its spin locks. Those
// who spin make no sense on one CPU.
var rwSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "rwmutex", Segment: newArena, Open: openRWMutex,
		Brief:     []string{"uncontended", "crash", "readers", "rw"},
		Scenarios: []string{"uncontended", "lock", "crash", "idle", "readers", "rw"}},
	{By: bench.Library, Prim: "rwmutex-read", Segment: newArena, Open: openReadPairs, Scenarios: []string{"uncontended"}},
	{By: bench.Library, Prim: "spinlock", Segment: newArena, Open: openSpinLock,
		Brief: []string{"uncontended"}, Scenarios: []string{"uncontended", "lock"}},
	{By: bench.Library, Prim: "rwspinlock", Segment: newArena, Open: openRWSpinLock,
		Scenarios: []string{"readers", "rw"}},
}

// sharedLock is a lock of the library that readers share.
type sharedLock interface {
	bench.Locker
	RLock()
	RUnlock()
	TryLock() bool
	LockContext(context.Context) error
	Recover(context.Context, func() error) error
}

// rwLock is such a lock as the cells use it.
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
	return rwLock{l}, err
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

// Inherit waits for the owner's death and becomes owner through Recover, as that
// of a mutex does.
func (l rwLock) Inherit() (owned int64, err error) {
	ctx := context.Background()
	if err := l.LockContext(ctx); !errors.Is(err, shmsync.ErrOwnerDead) {
		return 0, fmt.Errorf("the death was not reported: %w", err)
	}
	if err := l.Recover(ctx, func() error { owned = shmsync.Monotonic(); return nil }); err != nil {
		return 0, err
	}
	if owned == 0 {
		return 0, errors.New("recovered without a repair")
	}
	return owned, l.LockContext(ctx)
}

// rwMutex has loops of its own, for calls that need no table.
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

// readPairs is a lock whose uncontended pairs are those of a reader. Nobody else
// reads: it may count.
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

//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// workerGroupLock is a lock that the processes of a worker group use. rlock and runlock are nil for
// a lock without readers.
type workerGroupLock struct {
	lock   func(context.Context) error
	try    func() bool
	unlock func()

	rlock   func(context.Context) error
	runlock func()

	recover func(context.Context, func() error) error
	state   func() (held bool, err error)
	close   func() error
	fmt.Stringer
}

func init() {
	for name, w := range map[string]struct {
		open   func(a *arena.Arena) (workerGroupLock, error)
		points []string
	}{
		"cohortmutex": {openWorkerGroupCohortMutex, []string{
			"cohortmutex.*", "mutex.lock.announced", "mutex.lock.woken", "mutex.lock.leaving", "mutex.unlock.before_wake",
		}},
		"rwmutex": {openWorkerGroupRWMutex, []string{
			"rwmutex.rlock.registered", "rwmutex.rlock.announced", "rwmutex.lock.closed", "rwmutex.lock.acquired", "rwmutex.unlock.opened",
		}},
		"spinlock": {openWorkerGroupSpinLock, []string{
			"spinlock.lock.acquired", "spinlock.lock.announced", "spinlock.unlock.before_release", "spinlock.unlock.before_wake",
		}},
		"rwspinlock": {openWorkerGroupRWSpinLock, []string{
			"rwspinlock.drain.claimed", "rwspinlock.drain.announced", "rwspinlock.rlock.counted", "rwspinlock.runlock.before_release",
		}},
	} {
		lists := uint64(0)
		if name == "cohortmutex" {
			lists = cohortNodes
		}
		addWorkload(workload{name: name, points: w.points, lists: lists, open: func(a *arena.Arena) (worker, error) {
			l, err := w.open(a)
			if err != nil {
				return nil, err
			}
			b, err := arena.Value[lockedPair](a, "pair")
			return &lockWorker{l, b}, err
		}})
	}
}

func openWorkerGroupRWMutex(a *arena.Arena) (workerGroupLock, error) {
	m, err := prims.OpenRWMutex(a, "l", nil)
	if err != nil {
		return workerGroupLock{}, err
	}
	return workerGroupLock{m.LockContext, m.TryLock, m.Unlock, m.RLockContext, m.RUnlock, m.RecoverContext,
		func() (bool, error) { st := m.State(); return st.Held || st.Readers > 0, st.Err }, m.Close, m}, nil
}

func openWorkerGroupCohortMutex(a *arena.Arena) (workerGroupLock, error) {
	m, err := prims.OpenCohortMutex(a, "l", &prims.CohortMutexOptions{Nodes: cohortNodes})
	if err != nil {
		return workerGroupLock{}, err
	}
	return workerGroupLock{m.LockContext, m.TryLock, m.Unlock, nil, nil, m.RecoverContext,
		func() (bool, error) { st := m.State(); return st.Held, st.Err }, m.Close, m}, nil
}

func openWorkerGroupSpinLock(a *arena.Arena) (workerGroupLock, error) {
	l, err := prims.OpenSpinLock(a, "l", nil)
	if err != nil {
		return workerGroupLock{}, err
	}
	return workerGroupLock{l.LockContext, l.TryLock, l.Unlock, nil, nil, l.RecoverContext,
		func() (bool, error) { st := l.State(); return st.Held, st.Err }, l.Close, l}, nil
}

func openWorkerGroupRWSpinLock(a *arena.Arena) (workerGroupLock, error) {
	l, err := prims.OpenRWSpinLock(a, "l", nil)
	if err != nil {
		return workerGroupLock{}, err
	}
	return workerGroupLock{l.LockContext, l.TryLock, l.Unlock, l.RLockContext, l.RUnlock, l.RecoverContext,
		func() (bool, error) { st := l.State(); return st.Held || len(st.Readers) > 0, st.Err }, l.Close, l}, nil
}

// lockedPair is two numbers that are equal while no worker writes.
type lockedPair struct{ First, Second atomic.Uint64 }

func (p *lockedPair) check() error {
	if a, b := p.First.Load(), p.Second.Load(); a != b {
		return fmt.Errorf("%d and %d under the lock", a, b)
	}
	return nil
}

// lockWorker writes the pair under the lock, or reads it. If it finds that a holder died, it
// repairs the pair.
type lockWorker struct {
	l    workerGroupLock
	pair *lockedPair
}

func (w *lockWorker) turn(g int, r *rand.Rand) error {
	lock, unlock, writes := w.l.lock, w.l.unlock, true
	if w.l.rlock != nil && r.IntN(3) > 0 {
		lock, unlock, writes = w.l.rlock, w.l.runlock, false
	}
	return ends(r, func(ctx context.Context) error {
		switch err := lock(ctx); {
		case errors.Is(err, shmsync.ErrOwnerDead):
			if err := w.l.recover(ctx, w.repair); err != nil && !gaveUp(err) && !errors.Is(err, shmsync.ErrOwnerDead) {
				return err
			}
			return nil
		case gaveUp(err):
			return nil
		case err != nil:
			return err
		}
		defer unlock()
		if err := w.pair.check(); err != nil || !writes {
			return err
		}
		w.pair.First.Add(1)
		if r.IntN(4) == 0 {
			runtime.Gosched()
		}
		w.pair.Second.Add(1)
		return nil
	})
}

func (w *lockWorker) repair() error {
	w.pair.Second.Store(w.pair.First.Load())
	return nil
}

func (w *lockWorker) rest() error {
	if _, err := w.l.state(); errors.Is(err, shmsync.ErrOwnerDead) {
		if err := w.l.recover(context.Background(), w.repair); err != nil {
			return err
		}
	}
	if held, err := w.l.state(); held || err != nil || !w.l.try() {
		return fmt.Errorf("%w: %v, %w", errLeft, w.l, err)
	}
	w.l.unlock()
	return errors.Join(w.pair.check(), w.l.close())
}

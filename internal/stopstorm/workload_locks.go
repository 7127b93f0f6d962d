//go:build linux

package stopstorm

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/shmsync/shmsync/prims"
)

// locker has the operations of a lock, or of one mode of a lock, such as reading.
type locker struct {
	name   string
	lock   func(ctx context.Context) error // waits for ever if ctx is nil
	try    func() bool
	unlock func()
}

// hold works for a short time while a lane holds a lock.
func hold(r *rand.Rand) { spin(r.IntN(200)) }

//lint:ignore U1000 the compiler cannot remove the loop of spin, because it may store here
var sink uint64

// spin works for about n nanoseconds.
func spin(n int) {
	x := uint64(n)
	for range n {
		x = x*2862933555777941757 + 3037000493
	}
	if x == 42 {
		sink = x
	}
}

// release works for a short time, and then releases the lock.
func (l *locker) release(at *lanePage, r *rand.Rand) {
	at.at.Store(atHolding)
	hold(r)
	at.at.Store(atReleasing)
	l.unlock()
}

// lanes returns three lanes, that is, operations that goroutines repeat: lock without a limit, lock with a time
// limit, and try to lock.
func (l *locker) lanes() []lane {
	return []lane{
		{l.name, true, func(at *lanePage, r *rand.Rand) error {
			at.at.Store(atAcquiring)
			if err := l.lock(nil); err != nil {
				return err
			}
			l.release(at, r)
			return nil
		}},
		{l.name + ", gives up", false, func(at *lanePage, r *rand.Rand) error {
			at.at.Store(atAcquiring)
			return limited(func(ctx context.Context) error {
				if err := l.lock(ctx); err != nil {
					return err
				}
				l.release(at, r)
				return nil
			})
		}},
		{"try " + l.name, false, func(at *lanePage, r *rand.Rand) error {
			at.at.Store(atAcquiring)
			if l.try() {
				l.release(at, r)
			}
			return nil
		}},
	}
}

// ever returns a function that calls f with its own argument. If the argument is nil, it calls f with a context that
// never ends.
func ever(f func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if ctx == nil {
			ctx = context.Background()
		}
		return f(ctx)
	}
}

// mutual is the interface of all exclusive locks.
type mutual interface {
	LockContext(ctx context.Context) error
	TryLock() bool
	Unlock()
}

func mutualLanes(x mutual, err error) ([]lane, error) {
	if err != nil {
		return nil, err
	}
	l := locker{"lock", ever(x.LockContext), x.TryLock, x.Unlock}
	return l.lanes(), nil
}

func openMutex(w *worker) ([]lane, error) {
	return mutualLanes(prims.OpenMutex(w.a, "mutex", nil))
}

func openFairMutex(w *worker) ([]lane, error) {
	return mutualLanes(prims.OpenFairMutex(w.a, "fairmutex", nil))
}

func openCohortMutex(w *worker) ([]lane, error) {
	return mutualLanes(prims.OpenCohortMutex(w.a, "cohortmutex", &prims.CohortMutexOptions{Nodes: 2}))
}

func openSpinLock(w *worker) ([]lane, error) {
	return mutualLanes(prims.OpenSpinLock(w.a, "spinlock", nil))
}

// shared is the interface of all reader/writer locks.
type shared interface {
	mutual
	RLockContext(ctx context.Context) error
	TryRLock() bool
	RUnlock()
}

func sharedLanes(x shared, err error) ([]lane, error) {
	lanes, err := mutualLanes(x, err)
	if err != nil {
		return nil, err
	}
	l := locker{"rlock", ever(x.RLockContext), x.TryRLock, x.RUnlock}
	return append(lanes, l.lanes()[:2]...), nil
}

func openRWMutex(w *worker) ([]lane, error) {
	return sharedLanes(prims.OpenRWMutex(w.a, "rwmutex", nil))
}

func openRWSpinLock(w *worker) ([]lane, error) {
	return sharedLanes(prims.OpenRWSpinLock(w.a, "rwspinlock", nil))
}

func openMultiLock(w *worker) ([]lane, error) {
	x, err := prims.OpenMultiLock(w.a, "multilock", &prims.MultiLockOptions{Buckets: 2})
	if err != nil {
		return nil, err
	}
	var lanes []lane
	for _, keys := range [][]uint64{{1}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}} {
		// Each goroutine has a variable of its own for the lock that it holds.
		one := func(pick func(l *locker) lane) {
			var h prims.Holds
			lanes = append(lanes, pick(&locker{
				name: fmt.Sprintf("lock of %d keys", len(keys)),
				lock: ever(func(ctx context.Context) (err error) { h, err = x.LockAllContext(ctx, keys...); return err }),
				try: func() bool {
					one, ok := x.TryLock(keys[0])
					h = prims.Holds{one}
					return ok
				},
				unlock: func() { h.Unlock() },
			}))
		}
		one(func(l *locker) lane { return l.lanes()[0] })
		one(func(l *locker) lane { return l.lanes()[1] })
		if len(keys) == 1 {
			one(func(l *locker) lane { return l.lanes()[2] })
		}
	}
	return lanes, nil
}

// openSemaphore opens a semaphore with two permits more than all goroutines of one worker can take together. A
// stopped worker cannot have all permits, so its stop excuses no delay of other workers.
func openSemaphore(w *worker) ([]lane, error) {
	const lanes = 3
	x, err := prims.OpenSemaphore(w.a, "semaphore", lanes+2, nil)
	if err != nil {
		return nil, err
	}
	l := locker{
		"acquire", ever(func(ctx context.Context) error { return x.AcquireContext(ctx, 1) }),
		func() bool { return x.TryAcquire(1) }, func() { x.Release(1) },
	}
	all := l.lanes()
	all[0].needs = false
	return all, nil
}

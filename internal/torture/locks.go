//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// recoverable is the interface of all exclusive locks.
type recoverable interface {
	Lock()
	LockContext(ctx context.Context) error
	TryLock() bool
	Unlock()
	Recover(repair func() error) error
	String() string
}

// lockJob uses two locks of one kind. The lock in the field told has PolicyReport: the next process learns of the
// death of a holder. The lock in the field freed has PolicyRelease: the death of a holder releases the lock.
type lockJob struct {
	*party
	told, freed recoverable
	of          []witness
	idle        func(x recoverable) error
}

func openMutexJob(p *party) (jobWorker, error) {
	x, err := prims.OpenMutex(p.a, "mutex-told", nil)
	if err != nil {
		return nil, err
	}
	y, err := prims.OpenMutex(p.a, "mutex-freed", &prims.MutexOptions{Policy: prims.PolicyRelease})
	return &lockJob{p, x, y, p.page.board.locks[0:2], func(x recoverable) error {
		st := x.(*prims.Mutex).State()
		return leftOver(st.Held || st.Waiting || st.Owner != nil || st.Err != nil, st)
	}}, err
}

func openFairJob(p *party) (jobWorker, error) {
	x, err := prims.OpenFairMutex(p.a, "fair-told", nil)
	if err != nil {
		return nil, err
	}
	y, err := prims.OpenFairMutex(p.a, "fair-freed", &prims.FairMutexOptions{Policy: prims.PolicyRelease})
	return &lockJob{p, x, y, p.page.board.locks[2:4], func(x recoverable) error {
		st := x.(*prims.FairMutex).State()
		return leftOver(st.Held || st.Waiting || st.Owner != nil || st.Err != nil, st)
	}}, err
}

func openCohortJob(p *party) (jobWorker, error) {
	x, err := prims.OpenCohortMutex(p.a, "cohort-told", &prims.CohortMutexOptions{Nodes: 2})
	if err != nil {
		return nil, err
	}
	y, err := prims.OpenCohortMutex(p.a, "cohort-freed", &prims.CohortMutexOptions{Nodes: 2, Policy: prims.PolicyRelease})
	return &lockJob{p, x, y, p.page.board.locks[10:12], func(x recoverable) error {
		st := x.(*prims.CohortMutex).State()
		return leftOver(st.Held || st.Waiting || st.Owner != nil || st.Err != nil, st)
	}}, err
}

func openSpinJob(p *party) (jobWorker, error) {
	x, err := prims.OpenSpinLock(p.a, "spin-told", nil)
	if err != nil {
		return nil, err
	}
	y, err := prims.OpenSpinLock(p.a, "spin-freed", &prims.SpinLockOptions{Policy: prims.PolicyRelease})
	return &lockJob{p, x, y, p.page.board.locks[4:6], func(x recoverable) error {
		st := x.(*prims.SpinLock).State()
		return leftOver(st.Held || st.Owner != nil || st.Err != nil, st)
	}}, err
}

func (j *lockJob) turn(g int, r *rand.Rand) error {
	x, w := j.told, &j.of[0]
	if r.IntN(3) == 0 {
		x, w = j.freed, &j.of[1]
	}
	switch r.IntN(6) {
	case 0:
		if !x.TryLock() {
			return nil
		}
		return j.locked(x, w, r)
	case 1:
		if x == j.freed {
			x.Lock()
			return j.locked(x, w, r)
		}
		if f, ok := x.(*prims.FairMutex); ok {
			return j.async(f, w, r)
		}
	}
	return ends(r, func(ctx context.Context) error { return j.got(x.LockContext(ctx), x, w, r) })
}

// async takes the lock by an asynchronous wait, a Pending, or cancels that wait.
func (j *lockJob) async(f *prims.FairMutex, w *witness, r *rand.Rand) error {
	p := f.LockAsync()
	if r.IntN(2) == 0 && p.Cancel() {
		if err := p.Wait(); !errors.Is(err, shmsync.ErrCanceled) {
			return fmt.Errorf("a cancelled wait ends with %w", err)
		}
		return nil
	}
	return j.got(p.Wait(), f, w, r)
}

// got handles the result of a wait for a lock. It works under the lock, or recovers the lock after a death.
func (j *lockJob) got(err error, x recoverable, w *witness, r *rand.Rand) error {
	switch {
	case err == nil:
		return j.locked(x, w, r)
	case !ownerDied(err) || x == j.freed:
		return forgive(err)
	}
	return j.recover(x.Recover, w, r)
}

// recover recovers a lock whose holder has died. The repair function sometimes fails on purpose.
func (j *party) recover(lock func(repair func() error) error, w *witness, r *rand.Rand) error {
	var broken error
	err := lock(func() error {
		if broken = j.inside(w, r); r.IntN(4) == 0 {
			return errRepairFails
		}
		return nil
	})
	if broken != nil {
		return fmt.Errorf("while it recovers: %w", broken)
	}
	if ownerDied(err) || errors.Is(err, errRepairFails) {
		return nil // a later call recovers the lock
	}
	return err
}

func (j *lockJob) locked(x recoverable, w *witness, r *rand.Rand) error {
	if err := j.inside(w, r); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	x.Unlock()
	return nil
}

func (j *lockJob) rest() error {
	for _, x := range []recoverable{j.told, j.freed} {
		if err := x.Recover(func() error { return nil }); err != nil {
			return err
		}
		if err := j.idle(x); err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
	}
	return nil
}

const multiJobKeys = 24

// multiJob uses two MultiLocks that have room for fewer keys than multiJob locks.
type multiJob struct {
	*party
	told, freed *prims.MultiLock
	keys        []witness
}

func openMultiJob(p *party) (jobWorker, error) {
	x, err := prims.OpenMultiLock(p.a, "multi-told", &prims.MultiLockOptions{Buckets: 2})
	if err != nil {
		return nil, err
	}
	y, err := prims.OpenMultiLock(p.a, "multi-freed", &prims.MultiLockOptions{Policy: prims.PolicyRelease, Buckets: 1})
	return &multiJob{p, x, y, p.page.board.keys[:]}, err
}

// multiJobHalf is the number of keys that each of the two MultiLocks uses.
const multiJobHalf = multiJobKeys / 2

func (j *multiJob) turn(g int, r *rand.Rand) error {
	x := j.told
	if r.IntN(3) == 0 {
		x = j.freed
	}
	key := r.Uint64N(multiJobHalf)
	if r.IntN(2) == 0 {
		key = r.Uint64N(2) // two keys are used by many goroutines
	}
	switch r.IntN(6) {
	case 0:
		if h, ok := x.TryLock(key); ok {
			return j.locked(prims.Holds{h}, x, r)
		}
		return nil
	case 1, 2:
		keys := make([]uint64, 1+r.IntN(8))
		for i := range keys {
			keys[i] = r.Uint64N(multiJobHalf)
		}
		return ends(r, func(ctx context.Context) error {
			h, err := x.LockAllContext(ctx, keys...)
			return j.got(h, err, keys, x, r)
		})
	}
	return ends(r, func(ctx context.Context) error {
		h, err := x.LockContext(ctx, key)
		return j.got(prims.Holds{h}, err, []uint64{key}, x, r)
	})
}

func (j *multiJob) witness(x *prims.MultiLock, key uint64) *witness {
	if x == j.freed {
		key += multiJobHalf
	}
	return &j.keys[key]
}

func (j *multiJob) got(h prims.Holds, err error, keys []uint64, x *prims.MultiLock, r *rand.Rand) error {
	switch {
	case err == nil:
		return j.locked(h, x, r)
	case !ownerDied(err) || x == j.freed:
		return forgive(err)
	}
	for _, key := range keys {
		lock := func(repair func() error) error { return x.Recover(key, repair) }
		if err := j.recover(lock, j.witness(x, key), r); err != nil {
			return err
		}
	}
	return nil
}

func (j *multiJob) locked(h prims.Holds, x *prims.MultiLock, r *rand.Rand) error {
	for _, one := range h {
		if err := j.inside(j.witness(x, one.Key()), r); err != nil {
			return fmt.Errorf("%v, key %d: %w", x, one.Key(), err)
		}
	}
	h.Unlock()
	return nil
}

func (j *multiJob) rest() error {
	for _, x := range []*prims.MultiLock{j.told, j.freed} {
		for key := range uint64(multiJobHalf) {
			if err := x.Recover(key, func() error { return nil }); err != nil {
				return err
			}
			st := x.State(key)
			if err := leftOver(st.Held || st.Waiting || st.Err != nil || st.Owner != nil, st); err != nil {
				return fmt.Errorf("key %d: %w", key, err)
			}
		}
	}
	return nil
}

//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/shmsync/shmsync/prims"
)

// shared is the interface of all reader/writer locks.
type shared interface {
	recoverable
	RLockContext(ctx context.Context) error
	TryRLock() bool
	RUnlock()
	Downgrade()
}

// rwJob uses two reader/writer locks of one kind. As in lockJob, told has PolicyReport, and freed has PolicyRelease.
type rwJob struct {
	*party
	told, freed shared
	of          []witness
	upgrades    func(x shared) upgrades // returns the methods of x for upgradable holds
	idle        func(x shared) error
}

func openRWMutexJob(p *party) (jobWorker, error) {
	x, err := prims.OpenRWMutex(p.a, "rw-told", nil)
	if err != nil {
		return nil, err
	}
	y, err := prims.OpenRWMutex(p.a, "rw-freed", &prims.RWMutexOptions{Policy: prims.PolicyRelease})
	j := &rwJob{party: p, told: x, freed: y, of: p.page.board.locks[6:8], idle: func(x shared) error {
		st := x.(*prims.RWMutex).State()
		return leftOver(st.Held || st.Waiting != 0 || st.Owner != nil || st.Readers != 0 || st.Closed || st.Upgradable || st.Err != nil, st)
	}}
	j.upgrades = func(x shared) upgrades {
		l := x.(*prims.RWMutex)
		return upgrades{l.LockUpgradableContext, l.UpgradeContext, l.UnlockUpgradable, l.DowngradeToRead, l.DowngradeToUpgradable}
	}
	return j, err
}

func openRWSpinJob(p *party) (jobWorker, error) {
	x, err := prims.OpenRWSpinLock(p.a, "rwspin-told", nil)
	if err != nil {
		return nil, err
	}
	y, err := prims.OpenRWSpinLock(p.a, "rwspin-freed", &prims.RWSpinLockOptions{Policy: prims.PolicyRelease})
	j := &rwJob{party: p, told: x, freed: y, of: p.page.board.locks[8:10], idle: func(x shared) error {
		st := x.(*prims.RWSpinLock).State()
		return leftOver(st.Held || st.Upgrade || st.Draining || st.Owner != nil || len(st.Readers) != 0 || st.Err != nil, st)
	}}
	j.upgrades = func(x shared) upgrades {
		l := x.(*prims.RWSpinLock)
		return upgrades{l.LockUpgradableContext, l.UpgradeContext, l.UnlockUpgradable, l.DowngradeToRead, l.DowngradeToUpgradable}
	}
	return j, err
}

func (j *rwJob) turn(g int, r *rand.Rand) error {
	x, w := j.told, &j.of[0]
	if r.IntN(3) == 0 {
		x, w = j.freed, &j.of[1]
	}
	switch n := r.IntN(10); {
	case n == 0:
		if x.TryRLock() {
			return j.reading(x, w, r)
		}
		return nil
	case n == 1:
		if x.TryLock() {
			return j.writing(x, w, r)
		}
		return nil
	case n == 2:
		return j.upgrading(x, w, r)
	case n < 6:
		return ends(r, func(ctx context.Context) error {
			err := x.LockContext(ctx)
			if err == nil {
				return j.writing(x, w, r)
			}
			return j.failed(err, x, w, r)
		})
	}
	return ends(r, func(ctx context.Context) error {
		err := x.RLockContext(ctx)
		if err == nil {
			return j.reading(x, w, r)
		}
		return j.failed(err, x, w, r)
	})
}

func (j *rwJob) failed(err error, x shared, w *witness, r *rand.Rand) error {
	if !ownerDied(err) || x == j.freed {
		return forgive(err)
	}
	return j.recover(x.Recover, w, r)
}

// reading releases a hold for reading, after it has checked that no writer is active. Writers change the name and the
// counts in the witness, so these must stay the same during the check.
func (j *rwJob) reading(x shared, w *witness, r *rand.Rand) error {
	was, before, after := w.name.Load(), w.before, w.after
	for range r.IntN(100) {
	}
	if was == 0 && before != after || was != w.name.Load() || before != w.before || after != w.after {
		return fmt.Errorf("%v: a reader saw %d %d %d, then %d %d %d", x, was, before, after, w.name.Load(), w.before, w.after)
	}
	x.RUnlock()
	return nil
}

func (j *rwJob) writing(x shared, w *witness, r *rand.Rand) error {
	if err := j.inside(w, r); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	if r.IntN(4) == 0 {
		x.Downgrade()
		return j.reading(x, w, r)
	}
	x.Unlock()
	return nil
}

// upgrades has the methods of a lock for upgradable holds, which are read holds that can become exclusive.
type upgrades struct {
	lock, upgrade                func(context.Context) error
	unlock, toRead, toUpgradable func()
}

// upgrading takes an upgradable hold, and then downgrades, releases or upgrades it.
func (j *rwJob) upgrading(x shared, w *witness, r *rand.Rand) error {
	l := j.upgrades(x)
	return ends(r, func(ctx context.Context) error {
		if err := l.lock(ctx); err != nil {
			return j.failed(err, x, w, r)
		}
		switch r.IntN(3) {
		case 0:
			l.toRead()
			return j.reading(x, w, r)
		case 1:
			l.unlock()
			return nil
		}
		if err := l.upgrade(ctx); err != nil {
			l.unlock()
			return j.failed(err, x, w, r)
		}
		if err := j.inside(w, r); err != nil {
			return fmt.Errorf("%v, upgraded: %w", x, err)
		}
		l.toUpgradable()
		l.unlock()
		return nil
	})
}

func (j *rwJob) rest() error {
	for _, x := range []shared{j.told, j.freed} {
		if err := x.Recover(func() error { return nil }); err != nil {
			return err
		}
		if err := j.idle(x); err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
	}
	return nil
}

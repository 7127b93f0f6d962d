//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	addWorkload(workload{
		name:   "fairmutex",
		points: []string{"record.*", "fairmutex.*", "park.waitnode.*"},
		open: func(a *arena.Arena) (worker, error) {
			told, err := prims.OpenFairMutex(a, "told", nil)
			if err != nil {
				return nil, err
			}
			freed, err := prims.OpenFairMutex(a, "freed", &prims.FairMutexOptions{Policy: prims.PolicyRelease})
			if err != nil {
				return nil, err
			}
			v, err := arena.Value[fairBoard](a, "fair-board")
			return &fairWorker{told, freed, v}, err
		},
	})
}

// fairBoard is the data that the locks guard: for each lock two counts that are equal while nobody
// holds the lock. A death of the holder may leave a difference of one.
type fairBoard struct{ Told, Freed [2]uint64 }

type fairWorker struct {
	told, freed *prims.FairMutex
	board       *fairBoard
}

func (w *fairWorker) turn(g int, r *rand.Rand) error {
	f, v := w.told, &w.board.Told
	if r.IntN(3) == 0 {
		f, v = w.freed, &w.board.Freed
	}
	switch r.IntN(8) {
	case 0:
		if f.TryLock() {
			return w.inside(f, v, r)
		}
		return nil
	case 1:
		p := f.LockAsync()
		if r.IntN(2) == 0 && p.Cancel() {
			if err := p.Wait(); !errors.Is(err, shmsync.ErrCanceled) {
				return fmt.Errorf("a cancelled wait ends with %w", err)
			}
			return nil
		}
		return w.got(p.Wait(), f, v, r)
	}
	return ends(r, func(ctx context.Context) error { return w.got(f.LockContext(ctx), f, v, r) })
}

func (w *fairWorker) got(err error, f *prims.FairMutex, v *[2]uint64, r *rand.Rand) error {
	switch {
	case err == nil:
		return w.inside(f, v, r)
	case gaveUp(err):
		return nil
	case errors.Is(err, shmsync.ErrOwnerDead), errors.Is(err, shmsync.ErrNotRecoverable):
		if f == w.freed {
			return fmt.Errorf("policy PolicyRelease: %w", err)
		}
		err := f.Recover(func() error {
			v[1] = v[0]
			if r.IntN(4) == 0 {
				return errRepair
			}
			return nil
		})
		if errors.Is(err, shmsync.ErrNotRecoverable) {
			return nil
		}
		return err
	}
	return err
}

// inside does what a worker does while it holds the lock.
func (w *fairWorker) inside(f *prims.FairMutex, v *[2]uint64, r *rand.Rand) error {
	if f == w.freed {
		v[1] = v[0] // the death of a holder may have left a difference
	}
	if v[0] != v[1] {
		return fmt.Errorf("%v: %d, %d inside", f, v[0], v[1])
	}
	v[0]++
	for range r.IntN(100) {
	}
	v[1]++
	f.Unlock()
	return nil
}

func (w *fairWorker) rest() error {
	for _, f := range []*prims.FairMutex{w.told, w.freed} {
		if err := f.Recover(func() error { return nil }); err != nil {
			return err
		}
		if st := f.State(); st.Held || st.Waiting || st.Err != nil || st.Owner != nil {
			return fmt.Errorf("%w: %v %+v", errLeft, f, st)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

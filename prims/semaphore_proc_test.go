//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	addWorkload(workload{
		name:   "semaphore",
		points: []string{"record.*", "semaphore.*", "park.waitnode.*"},
		// semaphore.acquire.accepted: only a transferable semaphore passes this point. A member of the group
		// that dies there would keep the permits that it has of such a semaphore, and the group would run out
		// of permits. TestSemaphoreDiesAccepting has a process die there instead.
		without: []string{"semaphore.acquire.accepted"},
		open: func(a *arena.Arena) (worker, error) {
			scarce, err := prims.OpenSemaphore(a, "scarce", 5, nil)
			if err != nil {
				return nil, err
			}
			ample, err := prims.OpenSemaphore(a, "ample", 1000, nil)
			return &semaphoreWorker{scarce, ample}, err
		},
	})
}

type semaphoreWorker struct{ scarce, ample *prims.Semaphore }

func (w *semaphoreWorker) turn(g int, r *rand.Rand) error {
	n, s := int64(1+r.IntN(5)), w.scarce
	switch r.IntN(8) {
	case 0:
		if s.TryAcquire(n) {
			s.Release(n)
		}
		return nil
	case 1, 2:
		s = w.ample // a process rarely has to wait for it, so its shares open
	case 3:
		// Acquire all permits, so that all shares close.
		if w.ample.TryAcquire(1000) {
			w.ample.Release(1000)
		}
		return nil
	}
	return ends(r, func(ctx context.Context) error {
		switch err := s.AcquireContext(ctx, n); {
		case err == nil:
			for range r.IntN(100) {
			}
			s.Release(n)
			return nil
		case gaveUp(err):
			return nil
		default:
			return err
		}
	})
}

func (w *semaphoreWorker) rest() error {
	for _, s := range []*prims.Semaphore{w.scarce, w.ample} {
		if st := s.State(); st.Free != st.Size || st.Mine != 0 || st.Waiting {
			return fmt.Errorf("%w: %v %+v", errLeft, s, st)
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

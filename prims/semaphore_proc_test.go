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
		// Only a call on a transferable semaphore reaches the point semaphore.acquire.accepted. The permits of
		// a process that dies there stay taken, so the group would run out of permits. That is why only
		// TestSemaphoreDiesAccepting kills a process at this point.
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
		s = w.ample // ample has many permits, so mostly no wait is queued, and shares can open
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

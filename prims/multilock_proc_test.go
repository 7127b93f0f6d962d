//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	var without []string
	if race.Enabled { // each Unlock makes a record
		without = []string{"multilock.unlock.freed"}
	}
	addWorkload(workload{
		name:   "multilock",
		points: []string{"record.*", "multilock.*", "park.waitnode.*"},
		// Blocks are never freed, so only the first processes make blocks. TestMultiLockStoppedWithAFreshKey stops
		// and kills a process that makes a block.
		without: append(without, "multilock.block.pushed"),
		open: func(a *arena.Arena) (worker, error) {
			// There are few buckets, so that they have no room for all keys and get blocks.
			told, err := prims.OpenMultiLock(a, "told", &prims.MultiLockOptions{Buckets: 2})
			if err != nil {
				return nil, err
			}
			freed, err := prims.OpenMultiLock(a, "freed", &prims.MultiLockOptions{Policy: prims.PolicyRelease, Buckets: 1})
			if err != nil {
				return nil, err
			}
			v, err := arena.Value[multiBoard](a, "multi-board")
			return &multiWorker{told: told, freed: freed, board: v}, err
		},
	})
	addWorkload(workload{
		name: "multiquick",
		// This workload tests Unlocks without a record. Only these pass the crash point multilock.unlock.freed.
		points:  []string{"record.commit.*", "record.complete.*", "multilock.lock.*", "multilock.unlock.*"},
		without: without,
		open: func(a *arena.Arena) (worker, error) {
			// There are about as many entries as keys.
			told, err := prims.OpenMultiLock(a, "told", &prims.MultiLockOptions{Buckets: 8})
			if err != nil {
				return nil, err
			}
			freed, err := prims.OpenMultiLock(a, "freed", &prims.MultiLockOptions{Policy: prims.PolicyRelease, Buckets: 4})
			if err != nil {
				return nil, err
			}
			v, err := arena.Value[multiBoard](a, "multi-board")
			return &multiWorker{told: told, freed: freed, board: v, own: uint64(a.Self().Slot())}, err
		},
	})
}

const multiKeys = 24

// multiBoard is what the keys guard: for each key two counts that are equal while nobody holds the
// key.
type multiBoard struct{ Told, Freed [multiKeys][2]uint64 }

type multiWorker struct {
	told, freed *prims.MultiLock
	board       *multiBoard
	own         uint64 // not 0 if each goroutine of this process locks the same keys again and again
}

func (w *multiWorker) turn(g int, r *rand.Rand) error {
	x, v := w.told, &w.board.Told
	if r.IntN(3) == 0 {
		x, v = w.freed, &w.board.Freed
	}
	if w.own != 0 {
		return w.again(g, r, x, v)
	}
	key := r.Uint64N(multiKeys)
	if r.IntN(2) == 0 {
		key = r.Uint64N(2) // many goroutines want these two keys
	}
	switch r.IntN(6) {
	case 0:
		if h, ok := x.TryLock(key); ok {
			return w.inside(prims.Holds{h}, x, v, r)
		}
		return nil
	case 1, 2:
		keys := make([]uint64, 1+r.IntN(14))
		for i := range keys {
			keys[i] = r.Uint64N(multiKeys)
		}
		return ends(r, func(ctx context.Context) error {
			h, err := x.LockAllContext(ctx, keys...)
			return w.got(h, err, keys, x, v, r)
		})
	}
	return ends(r, func(ctx context.Context) error {
		h, err := x.LockContext(ctx, key)
		return w.got(prims.Holds{h}, err, []uint64{key}, x, v, r)
	})
}

// again makes one goroutine lock the same key many times. Other goroutines seldom want that key.
func (w *multiWorker) again(g int, r *rand.Rand, x *prims.MultiLock, v *[multiKeys][2]uint64) error {
	key := (w.own*7 + uint64(g)) % multiKeys
	if r.IntN(8) == 0 {
		key = r.Uint64N(multiKeys)
	}
	for range 1 + r.IntN(20) {
		err := ends(r, func(ctx context.Context) error {
			if r.IntN(4) == 0 {
				if h, ok := x.TryLock(key); ok {
					return w.inside(prims.Holds{h}, x, v, r)
				}
				return nil
			}
			h, err := x.LockContext(ctx, key)
			return w.got(prims.Holds{h}, err, []uint64{key}, x, v, r)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *multiWorker) got(h prims.Holds, err error, keys []uint64, x *prims.MultiLock, v *[multiKeys][2]uint64, r *rand.Rand) error {
	switch {
	case err == nil:
		return w.inside(h, x, v, r)
	case gaveUp(err):
		return nil
	case errors.Is(err, shmsync.ErrOwnerDead), errors.Is(err, shmsync.ErrNotRecoverable):
		if x == w.freed {
			return fmt.Errorf("policy PolicyRelease: %w", err)
		}
		for _, key := range keys {
			err := x.Recover(key, func() error {
				v[key][1] = v[key][0]
				if r.IntN(4) == 0 {
					return errRepair
				}
				return nil
			})
			if err != nil && !errors.Is(err, shmsync.ErrNotRecoverable) {
				return err
			}
		}
		return nil
	}
	return err
}

// inside does what a worker does while it holds the keys h.
func (w *multiWorker) inside(h prims.Holds, x *prims.MultiLock, v *[multiKeys][2]uint64, r *rand.Rand) error {
	for _, one := range h {
		p := &v[one.Key()]
		if x == w.freed {
			p[1] = p[0] // the death of a holder may have left a difference
		}
		if p[0] != p[1] {
			return fmt.Errorf("key %d: %d, %d inside", one.Key(), p[0], p[1])
		}
		p[0]++
	}
	for range r.IntN(100) {
	}
	for _, one := range h {
		v[one.Key()][1]++
	}
	h.Unlock()
	return nil
}

func (w *multiWorker) rest() error {
	for _, x := range []*prims.MultiLock{w.told, w.freed} {
		for key := range uint64(multiKeys) {
			if err := x.Recover(key, func() error { return nil }); err != nil {
				return err
			}
			if st := x.State(key); st.Held || st.Waiting || st.Err != nil || st.Owner != nil {
				return fmt.Errorf("%w: %v key %d %+v", errLeft, x, key, st)
			}
		}
		if err := x.Close(); err != nil {
			return err
		}
	}
	return nil
}

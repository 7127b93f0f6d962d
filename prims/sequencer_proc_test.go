//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	addWorkload(workload{
		name: "sequencer",
		points: []string{
			"sequencer.count.*", "sequencer.wait.*", "sequencer.cancel.marked", "sequencer.stop.marked",
		},
		lists: 3 * 15, // the cells of the Sequencers
		open: func(a *arena.Arena) (worker, error) {
			steps, err := prims.OpenSequencer(a, "steps", nil)
			if err != nil {
				return nil, err
			}
			far, err := prims.OpenSequencer(a, "far", nil)
			return &sequencerWorker{a, steps, far}, err
		},
	})
}

// sequencerWorker waits for values that the Sequencer w.steps reaches soon, and increments w.steps. It also waits for
// values of w.far, which nobody increments, and cancels these waits.
type sequencerWorker struct {
	a          *arena.Arena
	steps, far *prims.Sequencer
}

func (w *sequencerWorker) turn(g int, r *rand.Rand) error {
	switch r.IntN(12) {
	case 0:
		return w.cancelled(r)
	case 1:
		return w.stopped(r)
	case 2, 3:
		return w.async(r, 2)
	}
	// For each wait, a second goroutine makes the increments that the wait needs.
	s := w.steps
	token, pause := s.Value()+uint64(r.IntN(4)), r.IntN(200)
	var wg sync.WaitGroup
	wg.Go(func() {
		tolerant(func() {
			for range pause {
				runtime.Gosched()
			}
			for n := 0; s.Value() < token && goOn(n); n++ {
				s.Increment()
			}
		})
	})
	err := ends(r, func(ctx context.Context) error { return s.WaitContext(ctx, token) })
	wg.Wait()
	switch {
	case err == nil && s.Value() < token:
		return fmt.Errorf("the wait for %v has returned at %v", token, s)
	case err == nil, gaveUp(err):
		return nil
	}
	return err
}

// async begins n pending waits for the next values of steps, cancels some of them, and makes the increments for
// the others.
func (w *sequencerWorker) async(r *rand.Rand, n int) error {
	s := w.steps
	var waits []*prims.Pending
	var cancelled []bool
	last := uint64(0)
	for range n {
		token := s.Value() + uint64(r.IntN(8))
		last = max(last, token)
		waits = append(waits, s.WaitAsync(token))
	}
	for _, p := range waits {
		cancelled = append(cancelled, r.IntN(3) == 0 && p.Cancel())
	}
	s.Advance(last)
	for i, p := range waits {
		if err := p.Wait(); cancelled[i] != errors.Is(err, shmsync.ErrCanceled) || err != nil && !cancelled[i] {
			return fmt.Errorf("cancelled %v, and yet %w", cancelled[i], err)
		}
	}
	return nil
}

// cancelled waits for values that are never reached, and cancels the waits.
func (w *sequencerWorker) cancelled(r *rand.Rand) error {
	p, q := w.far.WaitAsync(1<<60+r.Uint64N(8)), w.far.WaitAsync(1<<60)
	w.far.CancelWaiters()
	for _, p := range []*prims.Pending{p, q} {
		if err := p.Wait(); !errors.Is(err, shmsync.ErrCanceled) {
			return fmt.Errorf("cancelled, and yet %w", err)
		}
	}
	return nil
}

// stopped waits for a token that is never reached, and stops the Sequencer. So each call makes a new Sequencer.
func (w *sequencerWorker) stopped(r *rand.Rand) error {
	s, err := prims.OpenSequencer(w.a, "", nil)
	if err != nil {
		return err
	}
	p, q := s.WaitAsync(2), s.WaitAsync(1)
	s.Increment()
	s.Stop()
	if err := q.Wait(); err != nil {
		return fmt.Errorf("reached, and yet %w", err)
	}
	for _, err := range []error{p.Wait(), s.Wait(2)} {
		if !errors.Is(err, shmsync.ErrCanceled) {
			return fmt.Errorf("stopped, and yet %w", err)
		}
	}
	return erase(w.a, s.Offset(), s)
}

func (w *sequencerWorker) rest() error {
	for _, s := range []*prims.Sequencer{w.steps, w.far} {
		if st := s.State(); st.Waiting || s.Overdue() {
			return fmt.Errorf("%w: %v", errLeft, s)
		}
		if s == w.far && s.Value() != 0 {
			return fmt.Errorf("%w: %v", errLeft, s)
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	addWorkload(workload{
		name: "event",
		points: []string{
			"event.set.before_wake", "event.wait.*", "event.turn.before_wake", "eventcount.wait.*",
		},
		open: func(a *arena.Arena) (worker, error) {
			gate, err := prims.OpenEvent(a, "gate", &prims.EventOptions{Mode: prims.EventBidirectional})
			if err != nil {
				return nil, err
			}
			baton, err := prims.OpenEvent(a, "baton", &prims.EventOptions{Mode: prims.EventAutoReset, InitiallySet: true})
			return &eventWorker{gate, baton}, err
		},
	})
}

// eventWorker has two Events. The baton is an auto-reset Event: a goroutine that has waited for it sets it again, for
// the next goroutine. The gate is set and reset while goroutines wait for it.
type eventWorker struct{ gate, baton *prims.Event }

func (w *eventWorker) turn(g int, r *rand.Rand) error {
	switch r.IntN(5) {
	case 0:
		return w.turnGate(g, r)
	case 1:
		return w.async(g, r)
	case 2:
		return w.any(g, r)
	}
	if g == 0 {
		// If a process dies while it has the baton, the baton is lost. So goroutine 0 sets the Event on each turn, even if
		// its wait fails. An additional Set does no harm.
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Microsecond)
		defer cancel()
		err := w.baton.WaitContext(ctx)
		w.baton.Set()
		if err != nil && !gaveUp(err) {
			return err
		}
		return nil
	}
	switch err := ends(r, w.baton.WaitContext); {
	case err == nil:
		w.baton.Set()
		return nil
	case gaveUp(err):
		return nil
	default:
		return err
	}
}

// turnGate waits for the set or the reset of the gate, while another goroutine sets and resets it.
func (w *eventWorker) turnGate(g int, r *rand.Rand) error {
	var done atomic.Bool
	var wg sync.WaitGroup
	pause := r.IntN(200)
	wg.Go(func() {
		for range pause {
			runtime.Gosched()
		}
		for n := 0; !done.Load() && goOn(n); n++ {
			tolerant(func() {
				w.gate.Set()
				w.gate.Reset()
			})
			runtime.Gosched()
		}
	})
	defer wg.Wait()
	defer done.Store(true)
	err := ends(r, func(ctx context.Context) error {
		if g%2 == 0 {
			return w.gate.WaitContext(ctx)
		}
		return w.gate.WaitResetContext(ctx)
	})
	if err != nil && !gaveUp(err) {
		return err
	}
	return nil
}

// any calls WaitAny for the gate and the baton, while another goroutine sets both.
func (w *eventWorker) any(g int, r *rand.Rand) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		tolerant(func() {
			w.baton.Set()
			w.gate.Set()
			w.gate.Reset()
		})
	})
	defer wg.Wait()
	return ends(r, func(ctx context.Context) error {
		switch i, err := prims.WaitAnyContext(ctx, w.gate, w.baton); {
		case err != nil && !gaveUp(err):
			return err
		case i == 1:
			w.baton.Set()
		}
		return nil
	})
}

func (w *eventWorker) async(g int, r *rand.Rand) error {
	if g == 0 {
		w.baton.Set()
		return nil
	}
	p := w.baton.WaitAsync()
	if r.IntN(2) == 0 && p.Cancel() {
		return nil
	}
	if err := p.Wait(); err != nil {
		return err
	}
	w.baton.Set()
	return nil
}

func (w *eventWorker) rest() error {
	// The bit announced may still be set although nobody waits. So this check counts the waits in the shares.
	if w.baton.State().Waiting || w.baton.Counted() != 0 {
		return fmt.Errorf("%w: %v", errLeft, w.baton)
	}
	// The token is there or was lost. After one more Set there is exactly one token.
	w.baton.Set()
	if !w.baton.TryWait() || w.baton.TryWait() {
		return fmt.Errorf("%w: not one token: %v", errLeft, w.baton)
	}
	if err := w.gate.Close(); err != nil {
		return err
	}
	return w.baton.Close()
}

//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	addWorkload(workload{
		name:   "future",
		points: []string{"future.*", "eventcount.*"},
		open:   func(a *arena.Arena) (worker, error) { return openFutureWorker(a) },
	})
}

// futureWorker has two kinds of goroutines. The first goroutines of each process produce results;
// the process may die before they have set them. The other goroutines wait for one Future, for any
// of several, or for all, and reset the Futures of dead producers.
type futureWorker struct {
	futures [4]*prims.Future
	list    []prims.Awaitable
	board   *workerGroupBoard
	drain   chan struct{} // closed when the work has ended
	stop    func()
	mu      sync.Mutex // held while setLast ends the remaining waits
}

func openFutureWorker(a *arena.Arena) (worker, error) {
	w := &futureWorker{drain: make(chan struct{})}
	for i := range w.futures {
		f, err := prims.OpenFuture(a, fmt.Sprint("f", i), nil)
		if err != nil {
			return nil, err
		}
		w.futures[i] = f
		w.list = append(w.list, f)
	}
	var err error
	w.board, err = arena.Value[workerGroupBoard](a, "board")
	w.stop = sync.OnceFunc(func() {
		close(w.drain)
		w.mu.Lock()
		defer w.mu.Unlock()
	})
	for p := range a.Participants() {
		if p.Slot == a.Self().Slot() && p.Label == workerGroupTest {
			(*arenakernel.Arena)(a).OnClose(w, w.stop)
			go w.letGo()
		}
	}
	return w, err
}

// letGo ends the last waits after the work has ended.
func (w *futureWorker) letGo() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if !w.setLast() {
			return
		}
	}
}

func (w *futureWorker) setLast() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.drain:
		return false
	default:
	}
	if w.board.Halt.Load() != 0 {
		for _, f := range w.futures {
			if !f.Set(0) {
				f.Reset()
				f.Set(0)
			}
		}
	}
	return true
}

func (w *futureWorker) turn(g int, r *rand.Rand) error {
	f := w.futures[r.IntN(len(w.futures))]
	if g < 4 {
		if g < 2 && r.IntN(4) == 0 {
			prims.SetAll(syscall.Errno(r.IntN(100)), w.futures[:]...)
			return nil
		}
		if f.Claim() {
			for range r.IntN(500) {
			}
			f.Set(syscall.Errno(r.IntN(100)))
		}
		f.Reset()
		return nil
	}
	return ends(r, func(ctx context.Context) error {
		var errno syscall.Errno
		var err error
		switch r.IntN(5) {
		case 0:
			_, err = prims.WaitAnyContext(ctx, w.list...)
		case 1:
			err = prims.WaitAllContext(ctx, w.list...)
		case 2:
			got := make(chan error, 2)
			p := f.Subscribe(func(_ syscall.Errno, err error) { got <- err })
			select {
			case err = <-got:
			case <-ctx.Done():
				p.Cancel()
				if err = <-got; errors.Is(err, shmsync.ErrCanceled) {
					err = nil
				}
			}
		default:
			errno, err = f.WaitContext(ctx)
		}
		switch {
		case errors.Is(err, shmsync.ErrOwnerDead):
			if identityOf(err) == nil {
				return fmt.Errorf("nobody has died: %w", err)
			}
			for _, f := range w.futures {
				if f.State().Err != nil {
					f.Reset()
				}
			}
			return nil
		case gaveUp(err):
			return nil
		case errno > 100:
			return fmt.Errorf("errno %d", errno)
		}
		return err
	})
}

func (w *futureWorker) rest() error {
	w.stop()
	for _, f := range w.futures {
		if f.State().Waiting {
			return fmt.Errorf("%w: %v", errLeft, f)
		}
	}
	return nil
}

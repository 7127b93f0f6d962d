//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	addWorkload(workload{
		name:   "cond",
		points: []string{"record.*", "cond.*", "park.waitnode.*", "mutex.unlock.before_release"},
		open:   func(a *arena.Arena) (worker, error) { return openCondWorker(a) },
	})
}

// condWorker: the first two goroutines of each process add items and call Signal, or end the round
// by a Broadcast. The other goroutines take items, or wait for the Broadcast.
type condWorker struct {
	l     *prims.Mutex
	items *prims.Cond // there are items
	gone  *prims.Cond // the round is over
	v     *condItems
	board *workerGroupBoard
	drain chan struct{} // closed when the work is over
	stop  func()
	mu    sync.Mutex // held while the remaining waiters are woken
}

type condItems struct{ Items, Round int64 }

func openCondWorker(a *arena.Arena) (worker, error) {
	w := &condWorker{drain: make(chan struct{})}
	var errs [5]error
	// The guarded data is correct after each single store. So the lock may become free when its
	// holder dies.
	w.l, errs[0] = prims.OpenMutex(a, "l", &prims.MutexOptions{Policy: prims.PolicyRelease})
	w.items, errs[1] = prims.OpenCond(a, "items", w.l, nil)
	w.gone, errs[2] = prims.OpenCond(a, "gone", w.l, nil)
	w.v, errs[3] = arena.Value[condItems](a, "values")
	w.board, errs[4] = arena.Value[workerGroupBoard](a, "board")
	for p := range a.Participants() {
		if p.Slot == a.Self().Slot() && p.Label == workerGroupTest {
			w.stop = sync.OnceFunc(func() {
				close(w.drain)
				w.mu.Lock()
				defer w.mu.Unlock()
			})
			(*arenakernel.Arena)(a).OnClose(w, w.stop)
			go w.letGo() // only in the test's own process
		}
	}
	return w, errors.Join(errs[:]...)
}

// letGo wakes the remaining waiters when the work ends, until all of them have returned.
func (w *condWorker) letGo() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.drain:
			return
		case <-tick.C:
		}
		w.wakeLast()
	}
}

func (w *condWorker) wakeLast() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.drain:
	default:
		if w.board.Halt.Load() != 0 {
			w.put(100, true)
		}
	}
}

func (w *condWorker) put(n int64, round bool) {
	w.l.Lock()
	defer w.l.Unlock()
	w.v.Items += n
	for range n {
		w.items.Signal()
	}
	if round {
		w.v.Round++
		w.gone.Broadcast()
	}
}

func (w *condWorker) turn(g int, r *rand.Rand) error {
	if g < 2 {
		w.put(int64(r.IntN(4)), r.IntN(4) == 0)
		for range r.IntN(2000) {
		}
		return nil
	}
	return ends(r, func(ctx context.Context) error {
		w.l.Lock()
		defer w.l.Unlock()
		if g%2 == 0 {
			for n := 0; w.v.Items == 0 && goOn(n); n++ {
				if err := w.items.WaitContext(ctx); err != nil {
					return condEnd(err)
				}
			}
			w.v.Items--
			return nil
		}
		round := w.v.Round
		for n := 0; w.v.Round == round && goOn(n); n++ {
			if err := w.gone.WaitContext(ctx); err != nil {
				return condEnd(err)
			}
			if w.v.Round == round && w.board.Halt.Load() == 0 {
				return errors.New("woken before the round was over")
			}
		}
		return nil
	})
}

func condEnd(err error) error {
	if gaveUp(err) {
		return nil
	}
	return err
}

func (w *condWorker) rest() error {
	w.stop()
	for _, c := range []*prims.Cond{w.items, w.gone} {
		if st := c.State(); st != (prims.CondState{}) {
			return fmt.Errorf("%w: %v", errLeft, c)
		}
	}
	return nil
}

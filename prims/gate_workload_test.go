//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	addWorkload(workload{
		name:    "waitgroup",
		points:  []string{"counter.*"},
		without: []string{"counter.reap.lost"}, // another process may notice the death first; see TestWaitGroupCrashOfReaper
		open: func(a *arena.Arena) (worker, error) {
			w := &waitGroupWorker{}
			for i := range w.groups {
				var err error
				if w.groups[i], err = prims.OpenWaitGroup(a, fmt.Sprintf("group-%d", i), nil); err != nil {
					return nil, err
				}
			}
			return w, nil
		},
	})
	addWorkload(workload{
		name:   "latch",
		points: []string{"counter.done.*", "counter.zero.*", "counter.commit.*", "counter.wait.*"},
		open: func(a *arena.Arena) (worker, error) {
			l, err := prims.OpenLatch(a, "deep", 1<<30, nil)
			return &latchWorker{a, l}, err
		},
	})
	addWorkload(workload{
		name:   "barrier",
		points: []string{"barrier.*", "counter.commit.*", "eventcount.*"},
		without: []string{
			"barrier.reap.lost",        // another process may notice the death first; see TestBarrierCrashOfReaper
			"barrier.reset.remembered", // mostly another process resets first; see TestBarrierCrashOfReset
		},
		open: openBarrierWorker,
	})
	addWorkload(workload{
		name:   "once",
		points: []string{"once.*"}, without: []string{"once.reap.left"}, // see TestOnceCrashOfReaper
		open: func(a *arena.Arena) (worker, error) {
			b, err := arena.Value[onceBoard](a, "onces")
			return &onceWorker{a, b}, err
		},
	})
}

// waitGroupWorker has four WaitGroups; goroutines of all processes use each of them. A goroutine counts down what it
// has added before it waits. So when all of them wait, the counter is 0 and each wait ends.
type waitGroupWorker struct{ groups [4]*prims.WaitGroup }

func (w *waitGroupWorker) turn(g int, r *rand.Rand) error {
	x := w.groups[g%len(w.groups)]
	if r.IntN(3) > 0 {
		n := 1 + r.IntN(3)
		x.Add(n)
		for range r.IntN(200) {
			runtime.Gosched()
		}
		if r.IntN(2) == 0 {
			x.Add(-n)
			return nil
		}
		for range n {
			x.Done()
		}
		return nil
	}
	return ends(r, func(ctx context.Context) error {
		err := x.WaitContext(ctx)
		switch {
		case errors.Is(err, shmsync.ErrOwnerDead):
			x.Reset()
		case err != nil && !gaveUp(err):
			return err
		}
		return nil
	})
}

func (w *waitGroupWorker) rest() error {
	for _, g := range w.groups {
		g.Reset()
		if st := g.State(); st.Count != 0 || st.Own != 0 || st.Waiting || st.Err != nil {
			return fmt.Errorf("%w: %v %+v", errLeft, g, st)
		}
		if err := g.Close(); err != nil {
			return err
		}
	}
	return nil
}

// latchWorker uses two kinds of latches. The latch deep is common to all processes and never opens: a wait for it ends
// with the report of a death or with its context. A latch that the worker creates does open.
type latchWorker struct {
	a    *arena.Arena
	deep *prims.Latch
}

func (w *latchWorker) turn(g int, r *rand.Rand) error {
	if r.IntN(2) == 0 {
		n := int64(1 + r.IntN(3))
		w.deep.Claim(n)
		for range r.IntN(100) {
			runtime.Gosched()
		}
		w.deep.CountDown(n + int64(r.IntN(2)))
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(500))*time.Microsecond)
		defer cancel()
		err := w.deep.WaitContext(ctx)
		switch {
		case errors.Is(err, shmsync.ErrOwnerDead):
			w.deep.Reset()
		case !gaveUp(err):
			return fmt.Errorf("wait of an endless latch: %w", err)
		}
		return nil
	}
	own, err := prims.OpenLatch(w.a, "", 3, nil)
	if err != nil {
		return err
	}
	done := make(chan error, 2)
	apart := func(f func() error) {
		var err error
		defer func() { done <- err }()
		if failure := tolerant(func() { err = f() }); failure != nil {
			err = failure
		}
	}
	go apart(func() error { return own.ArriveAndWaitContext(context.Background(), 1) })
	go apart(func() error { return own.WaitContext(context.Background()) })
	for range r.IntN(100) {
		runtime.Gosched()
	}
	own.ArriveAndWait(2)
	if err := errors.Join(<-done, <-done); err != nil {
		return err
	}
	return erase(w.a, own.Offset(), own)
}

func (w *latchWorker) rest() error {
	w.deep.Reset()
	if st := w.deep.State(); st.Own != 0 || st.Waiting || st.Err != nil || st.Count >= st.Size {
		return fmt.Errorf("%w: %v %+v", errLeft, w.deep, st)
	}
	return w.deep.Close()
}

type barrierBoard struct {
	Begun, Ended atomic.Uint64 // how many completion functions have begun and ended
	Inside       atomic.Uint32 // the participant that runs a completion function
	Overlaps     atomic.Uint32
}

// barrierWorker has two barriers of four parties. Any four arrivals end a phase, no matter from which processes.
type barrierWorker struct {
	plain, complete *prims.Barrier
	board           *barrierBoard
	halted          context.Context // done when the work ends: the last phase may get fewer than four arrivals
}

func openBarrierWorker(a *arena.Arena) (worker, error) {
	board, err := arena.Value[barrierBoard](a, "completions")
	if err != nil {
		return nil, err
	}
	w := &barrierWorker{board: board, halted: context.Background()}
	if w.plain, err = prims.OpenBarrier(a, "plain", 4, nil); err != nil {
		return nil, err
	}
	w.complete, err = prims.OpenBarrier(a, "complete", 4, &prims.BarrierOptions{Completion: func() {
		board.Begun.Add(1)
		if n := board.Inside.Swap(uint32(a.Self())); n != 0 && a.Current(arena.ParticipantID(n)) {
			board.Overlaps.Add(1)
		}
		runtime.Gosched()
		board.Inside.Store(0)
		board.Ended.Add(1)
	}})
	return w, err
}

func (w *barrierWorker) until(halted context.Context) { w.halted = halted }

func (w *barrierWorker) turn(g int, r *rand.Rand) error {
	b := w.plain
	if g%2 == 0 {
		b = w.complete
	}
	ctx, cancel := w.halted, func() {}
	if r.IntN(4) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(300))*time.Microsecond)
	}
	defer cancel()
	var err error
	if r.IntN(8) == 0 {
		err = b.WaitContext(ctx, b.Arrive(1))
	} else {
		err = b.ArriveAndWaitContext(ctx)
	}
	switch {
	case errors.Is(err, shmsync.ErrOwnerDead):
		b.ResetTo(4) // other parties take the place of the dead ones
	case err != nil && !gaveUp(err):
		return err
	}
	return nil
}

func (w *barrierWorker) rest() error {
	for _, b := range []*prims.Barrier{w.plain, w.complete} {
		b.ResetTo(4) // other parties take the place of the dead ones
		st := b.State()
		if st.Waiting || st.Completer != nil || st.Err != nil || st.Expected != 4 || st.Pending < 1 || st.Pending > 4 {
			return fmt.Errorf("%w: %v %+v", errLeft, b, st)
		}
		if b == w.complete && (w.board.Ended.Load() > uint64(st.Phase) || w.board.Overlaps.Load() != 0) {
			return fmt.Errorf("%w: %d completions of %d phases, %d overlaps", errLeft, w.board.Ended.Load(), st.Phase, w.board.Overlaps.Load())
		}
		if err := b.Close(); err != nil {
			return err
		}
	}
	return nil
}

const onceRounds = 1 << 16

// onceBoard counts what the functions of the Onces do.
type onceBoard struct {
	Round   atomic.Uint64
	Entries [onceRounds]struct {
		Inside atomic.Uint32 // the participant that runs the function
		Ended  atomic.Uint32
	}
}

// onceWorker uses many Onces, one after the other, each with its own name.
type onceWorker struct {
	a     *arena.Arena
	board *onceBoard
}

func (w *onceWorker) turn(g int, r *rand.Rand) error {
	n := w.board.Round.Load()
	e := &w.board.Entries[n%onceRounds]
	o, err := prims.OpenOnce(w.a, fmt.Sprintf("once-%d", n), nil)
	if err != nil {
		return err
	}
	overlap := false
	err = ends(r, func(ctx context.Context) error {
		return o.DoContext(ctx, func() {
			if was := arena.ParticipantID(e.Inside.Swap(uint32(w.a.Self()))); was != 0 && w.a.Current(was) {
				overlap = true
			}
			for range r.IntN(50) {
				runtime.Gosched()
			}
			e.Ended.Add(1)
			e.Inside.Store(0)
		})
	})
	switch {
	case overlap:
		return fmt.Errorf("two functions of %v run at once", o)
	case err == nil && e.Ended.Load() == 0:
		return fmt.Errorf("%v returned before its function had", o)
	case err != nil && !gaveUp(err):
		return err
	}
	mine := err == nil && w.board.Round.CompareAndSwap(n, n+1)
	if err := o.Close(); err != nil {
		return err
	}
	// Other processes may still use a Once that is deleted here. If a process opens the name later, it makes another
	// Once, with which the test works just as well.
	if n > 100 && r.IntN(4) == 0 {
		w.a.Delete(fmt.Sprintf("once-%d", n-uint64(20+r.IntN(80))))
	}
	if n > 100 && mine {
		w.a.Delete(fmt.Sprintf("once-%d", n-100))
	}
	return nil
}

func (w *onceWorker) rest() error {
	for n := range min(w.board.Round.Load(), onceRounds) {
		if w.board.Entries[n].Ended.Load() == 0 {
			return fmt.Errorf("%w: no process has run the function of the Once number %d", errLeft, n)
		}
	}
	return nil
}

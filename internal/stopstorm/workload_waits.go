//go:build linux

package stopstorm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"syscall"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

func openSequencer(w *worker) ([]lane, error) {
	x, err := prims.OpenSequencer(w.a, "sequencer", nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("increment", false, func(*rand.Rand) error { x.Increment(); return nil }),
		plain("wait", false, func(*rand.Rand) error { return x.Wait(x.Value() + 1) }),
		within("wait, gives up", func(ctx context.Context) error { return x.WaitContext(ctx, x.Value()+1<<40) }),
	}, nil
}

func openFutex(w *worker) ([]lane, error) {
	x, err := prims.OpenFutex(w.a, "futex", nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("post", false, func(*rand.Rand) error { x.Post(); return nil }),
		plain("wait", false, func(*rand.Rand) error { return x.Wait(x.Get() + 1) }),
		within("wait, gives up", func(ctx context.Context) error { return x.WaitContext(ctx, x.Get()+1<<40) }),
	}, nil
}

// openEvent opens an event that the goroutines set and reset all the time, and another event that stays reset.
func openEvent(w *worker) ([]lane, error) {
	x, err := prims.OpenEvent(w.a, "event", &prims.EventOptions{Mode: prims.EventBidirectional})
	if err != nil {
		return nil, err
	}
	never, err := prims.OpenEvent(w.a, "event-never", nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("set, reset", false, func(*rand.Rand) error { x.Set(); x.Reset(); return nil }),
		plain("wait", false, func(*rand.Rand) error { x.Wait(); return nil }),
		plain("wait for the reset", false, func(*rand.Rand) error { x.WaitReset(); return nil }),
		within("wait, gives up", never.WaitContext),
	}, nil
}

func openAutoEvent(w *worker) ([]lane, error) {
	x, err := prims.OpenEvent(w.a, "event", &prims.EventOptions{Mode: prims.EventAutoReset})
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("set", false, func(*rand.Rand) error { x.Set(); return nil }),
		plain("wait", false, func(*rand.Rand) error { x.Wait(); return nil }),
		within("wait, gives up", x.WaitContext),
	}, nil
}

// openFuture opens two Futures. The goroutines set the first Future without a claim. They claim the second Future
// before they set it.
func openFuture(w *worker) ([]lane, error) {
	x, err := prims.OpenFuture(w.a, "future", nil)
	if err != nil {
		return nil, err
	}
	claimed, err := prims.OpenFuture(w.a, "future-claimed", nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("set, reset", false, func(*rand.Rand) error { x.Set(0); x.Reset(); return nil }),
		plain("wait", false, func(*rand.Rand) error { _, err := x.Wait(); return err }),
		plain("claim, set, reset", false, func(*rand.Rand) error {
			if claimed.Claim() {
				claimed.Set(0)
			}
			claimed.Reset()
			return nil
		}),
		within("wait, gives up", func(ctx context.Context) error { _, err := claimed.WaitContext(ctx); return err }),
	}, nil
}

func openWaitAny(w *worker) ([]lane, error) {
	step, err1 := prims.OpenSequencer(w.a, "any-step", nil)
	word, err2 := prims.OpenFutex(w.a, "any-word", nil)
	set, err3 := prims.OpenEvent(w.a, "any-set", nil)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	list := func(ahead uint64) []prims.Awaitable {
		return []prims.Awaitable{step.At(step.Value() + ahead), word.At(word.Get() + ahead), set}
	}
	return []lane{
		plain("let go", false, func(*rand.Rand) error { step.Increment(); word.Post(); set.Set(); set.Reset(); return nil }),
		plain("wait for any", false, func(*rand.Rand) error { _, err := prims.WaitAny(list(1)...); return err }),
		within("wait for all, gives up", func(ctx context.Context) error { return prims.WaitAllContext(ctx, list(1<<40)...) }),
	}, nil
}

// openCond opens a Cond. Signals do not take its lock, so only waiters need the lock.
func openCond(w *worker) ([]lane, error) {
	l, err := prims.OpenMutex(w.a, "cond-lock", nil)
	if err != nil {
		return nil, err
	}
	x, err := prims.OpenCond(w.a, "cond", l, nil)
	if err != nil {
		return nil, err
	}
	wait := func(at *lanePage, ctx context.Context) error {
		at.at.Store(atAcquiring)
		l.Lock()
		err := x.WaitContext(ctx)
		at.at.Store(atReleasing)
		l.Unlock()
		return err
	}
	return []lane{
		plain("signal", false, func(*rand.Rand) error { x.Signal(); return nil }),
		plain("broadcast", false, func(*rand.Rand) error { x.Broadcast(); return nil }),
		{"wait", true, func(at *lanePage, r *rand.Rand) error { return wait(at, nil) }},
		{"wait, gives up", true, func(at *lanePage, r *rand.Rand) error {
			return limited(func(ctx context.Context) error { return wait(at, ctx) })
		}},
	}, nil
}

// openQueue opens a queue with room for the items of all goroutines, and another queue that stays empty.
func openQueue(w *worker) ([]lane, error) {
	x, err := prims.OpenQueue[[4]uint64](w.a, "queue", 64, nil)
	if err != nil {
		return nil, err
	}
	empty, err := prims.OpenQueue[uint64](w.a, "queue-empty", 4, nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("put", false, func(r *rand.Rand) error { return x.Put([4]uint64{r.Uint64()}) }),
		plain("get", false, func(*rand.Rand) error { _, err := x.Get(); return err }),
		plain("lease, ack", false, func(*rand.Rand) error {
			l, err := x.Lease()
			if err == nil {
				l.Ack()
			}
			return err
		}),
		within("get, gives up", func(ctx context.Context) error { _, err := empty.GetContext(ctx); return err }),
	}, nil
}

func openWaitGroup(w *worker) ([]lane, error) {
	x, err := prims.OpenWaitGroup(w.a, "waitgroup", nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("add, done", false, func(*rand.Rand) error { x.Add(1); x.Add(-1); return nil }),
		plain("wait", true, func(*rand.Rand) error { return x.WaitContext(context.Background()) }),
		within("wait, gives up", x.WaitContext),
	}, nil
}

func openLatch(w *worker) ([]lane, error) {
	x, err := prims.OpenLatch(w.a, "latch", 1<<31-1, nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("claim, count down", false, func(*rand.Rand) error { x.Claim(1); x.CountDown(1); return nil }),
		plain("try", false, func(*rand.Rand) error { x.TryWait(); return nil }),
		within("wait, gives up", x.WaitContext),
	}, nil
}

// openBarrier opens a barrier of two parties at which all workers arrive. So any two arrivals end a phase, and no
// worker depends on one particular other worker.
func openBarrier(w *worker) ([]lane, error) {
	x, err := prims.OpenBarrier(w.a, "barrier", 2, nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("arrive", false, func(*rand.Rand) error { x.Arrive(1); return nil }),
		plain("arrive, wait", false, func(*rand.Rand) error { return x.ArriveAndWaitContext(context.Background()) }),
		within("arrive, wait, gives up", x.ArriveAndWaitContext),
	}, nil
}

// openOnce returns operations that use a new Once for each call. One operation instead calls a Once whose function
// has already run.
func openOnce(w *worker) ([]lane, error) {
	name := func(n uint64) string { return fmt.Sprint("once-", n) }
	do := func(at *lanePage, ctx context.Context) error {
		at.at.Store(atAcquiring)
		n := w.page.round.Load() + 1
		x, err := prims.OpenOnce(w.a, name(n), nil)
		if err != nil {
			return err
		}
		err = x.DoContext(ctx, func() {
			at.at.Store(atHolding)
			spin(100)
			at.at.Store(atReleasing)
		})
		if err := x.Close(); err != nil {
			return err
		}
		if err == nil && w.page.round.CompareAndSwap(n-1, n) {
			for back := uint64(10); back < min(n, 60); back += 10 {
				w.a.Delete(name(n - back)) // delete older objects; goroutines may still use the last ones
			}
		}
		return err
	}
	done, err := prims.OpenOnce(w.a, "once-done", nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		{"do", true, func(at *lanePage, r *rand.Rand) error { return do(at, context.Background()) }},
		{"do, gives up", false, func(at *lanePage, r *rand.Rand) error {
			return limited(func(ctx context.Context) error { return do(at, ctx) })
		}},
		plain("done", false, func(*rand.Rand) error { done.Do(func() {}); return nil }),
	}, nil
}

// openSignal opens a SignalWaker with 64 tasks. If a worker is stopped while it executes a task, enough tasks remain
// for the other workers.
func openSignal(w *worker) ([]lane, error) {
	x, err := prims.OpenSignalWaker(w.a, "signal", nil)
	if err != nil {
		return nil, err
	}
	return []lane{
		plain("schedule", false, func(r *rand.Rand) error { x.Gate(r.IntN(64)).Schedule(); return nil }),
		plain("execute", false, func(r *rand.Rand) error {
			if g, ok := x.Next(r.IntN(64)); ok {
				g.Finish()
			}
			return nil
		}),
		plain("release", false, func(*rand.Rand) error { x.Release(1); return nil }),
		plain("acquire", false, func(*rand.Rand) error { x.Acquire(); return nil }),
		within("acquire, gives up", x.AcquireContext),
	}, nil
}

// held is the state of a Waitable that is used as a lock. Held is 1 while the lock is held.
type held struct{ Held uint32 }

func openWaitable(w *worker) ([]lane, error) {
	x, err := prims.OpenWaitable(w.a, "waitable", held{}, prims.Rules[held, bool]{
		Claim: func(s *held, _ bool) bool {
			if s.Held != 0 {
				return false
			}
			s.Held = 1
			return true
		},
		Release: func(s *held, _ bool) { s.Held = 0 },
	}, nil)
	if err != nil {
		return nil, err
	}
	l := locker{name: "claim", lock: ever(func(ctx context.Context) error { return x.WaitContext(ctx, true) }), unlock: func() { x.Release(true) }}
	return append(l.lanes()[:2], plain("update", false, func(*rand.Rand) error { x.Update(func(*held) {}); return nil })), nil
}

// openSynchronized opens a Synchronized that goroutines change and read. A Load waits for nothing that other processes
// hold.
func openSynchronized(w *worker) ([]lane, error) {
	x, err := prims.OpenSynchronized(w.a, "synchronized", [16]uint64{}, nil)
	if err != nil {
		return nil, err
	}
	// with returns an operation that calls f on the value, through UpdateContext or ViewContext.
	with := func(at *lanePage, r *rand.Rand, call func(context.Context, func(*[16]uint64) error) error, f func(v *[16]uint64)) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			at.at.Store(atAcquiring)
			err := call(ctx, func(v *[16]uint64) error {
				at.at.Store(atHolding)
				hold(r)
				f(v)
				return nil
			})
			at.at.Store(atReleasing)
			return err
		}
	}
	add := func(v *[16]uint64) {
		v[0]++
		v[15] = v[0]
	}
	return []lane{
		{"update", true, func(at *lanePage, r *rand.Rand) error { return with(at, r, x.UpdateContext, add)(context.Background()) }},
		{"update, gives up", false, func(at *lanePage, r *rand.Rand) error { return limited(with(at, r, x.UpdateContext, add)) }},
		{"view", true, func(at *lanePage, r *rand.Rand) error {
			return with(at, r, x.ViewContext, func(*[16]uint64) {})(context.Background())
		}},
		plain("load", false, func(*rand.Rand) error {
			if v := x.Load(); v[0] != v[15] {
				return errors.New("a torn value")
			}
			return nil
		}),
	}, nil
}

// openObjects returns operations that open, close and delete objects of a few names, and allocate memory.
func openObjects(w *worker) ([]lane, error) {
	return []lane{
		plain("open, close", false, func(r *rand.Rand) error {
			x, err := prims.OpenEvent(w.a, fmt.Sprint("object-", r.IntN(12)), nil)
			if err != nil {
				return err
			}
			return x.Close()
		}),
		plain("delete", false, func(r *rand.Rand) error {
			err := w.a.Delete(fmt.Sprint("object-", r.IntN(12)))
			if errors.Is(err, syscall.EBUSY) || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}),
		plain("claim, unclaim memory", false, func(r *rand.Rand) error {
			off, err := (*arenakernel.Arena)(w.a).ClaimBlock(uint64(1 + r.IntN(2000)))
			if err == nil {
				(*arenakernel.Arena)(w.a).UnclaimBlock(off)
			}
			return err
		}),
		plain("allocate, free", false, func(r *rand.Rand) error {
			off, err := w.a.Alloc(uint64(1+r.IntN(20_000)), 64)
			if err == nil {
				w.a.Free(off)
			}
			return err
		}),
	}, nil
}

//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// turnsBoard is the data that a FairMutex guards: which place its last holder had in the order of arrival, and
// how many mistakes were found.
type turnsBoard struct{ Last, Holds, Wrong uint64 }

type turnsParams struct {
	Arena              string
	Goroutines, Rounds int
}

func init() {
	proctest.Register("fair-turns", func(c *proctest.Child) {
		var p turnsParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		c.Await()
		if err := p.run(a, 1); err != nil {
			c.Fatal(err)
		}
	})
}

// run starts goroutines that lock and unlock, or give up after a random time.
func (p turnsParams) run(a *arena.Arena, seed uint64) error {
	f, err := prims.OpenFairMutex(a, "f", nil)
	if err != nil {
		return err
	}
	v, err := arena.Value[turnsBoard](a, "board")
	if err != nil {
		return err
	}
	errs := make(chan error, p.Goroutines)
	var wg sync.WaitGroup
	for g := range p.Goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			for range p.Rounds {
				ctx, cancel := context.WithCancel(context.Background())
				if r.IntN(4) == 0 {
					go func(n int) {
						for range n {
							runtime.Gosched()
						}
						cancel()
					}(r.IntN(40))
				}
				stamp, err := f.LockStamped(ctx)
				if err == nil {
					if stamp != 0 && stamp < v.Last {
						v.Wrong++
					}
					v.Last = max(stamp, v.Last)
					v.Holds++
					f.Unlock()
				} else if !errors.Is(err, context.Canceled) {
					errs <- err
				}
				cancel()
			}
		})
	}
	wg.Wait()
	close(errs)
	if n := f.Waiters(); n != 0 {
		return fmt.Errorf("%d waits are left on the line", n)
	}
	return errors.Join(<-errs, f.Close())
}

// TestFairMutexTurnsKeepTheOrderOfArrival: goroutines of two processes get a FairMutex in the order in which their
// waits arrived, whatever their process is. Other goroutines give up their waits at any time.
func TestFairMutexTurnsKeepTheOrderOfArrival(t *testing.T) {
	a := newArena(t, nil)
	v, err := arena.Value[turnsBoard](a, "board")
	require.NoError(t, err)
	f, err := prims.OpenFairMutex(a, "f", nil)
	require.NoError(t, err)
	p := turnsParams{Arena: nameOf(a), Goroutines: 8, Rounds: proctest.Rounds(300, 3000)}
	x := proctest.Start(t, "fair-turns", proctest.Params(p))
	x.Await(t)
	x.Send("go")
	require.NoError(t, p.run(a, 2))
	x.WaitExit(t)
	require.Zero(t, v.Wrong, "later waits that had the lock first")
	require.Positive(t, v.Holds)
	require.Zero(t, f.Queued())
	require.False(t, f.State().Held)
}

// fairLine makes this process hold the lock. Then it queues two waits of another process, and after these one
// wait of this process.
func fairLine(t *testing.T) (f *prims.FairMutex, x *actor, theirs [2]int, got chan struct{}) {
	a := newArena(t, nil)
	f, err := prims.OpenFairMutex(a, "f", nil)
	require.NoError(t, err)
	f.Lock()
	x = lockActor(t, a, "other")
	for i := range theirs {
		theirs[i] = x.start(orderFor("flock", "f"))
		eventually(t, "it waits", f.String, func() bool { return f.Queued() == i+1 })
	}
	eventually(t, "the first of them sleeps", f.String, func() bool { return f.Asleep() == 1 })
	got = make(chan struct{})
	go func() {
		f.Lock()
		close(got)
	}()
	eventually(t, "all wait", f.String, func() bool { return f.Queued() == 3 && f.Asleep() == 2 })
	return f, x, theirs, got
}

// TestFairMutexKilledWithTheTurn: a process is killed while one of its goroutines has the turn, that is, is the
// first on the line of the process's waits. Later waits of other processes get the lock.
func TestFairMutexKilledWithTheTurn(t *testing.T) {
	f, x, _, got := fairLine(t)
	x.proc.Kill(t)
	f.Unlock()
	<-got
	f.Unlock()
	require.Zero(t, f.Waiters())
	require.NoError(t, f.State().Err)
}

// TestFairMutexStoppedWithTheTurn: a process is stopped while one of its goroutines has the turn. Other
// processes are not affected until the lock is granted to that goroutine. Then they wait for the process, as
// for any stopped holder. When the process goes on, the order of arrival is as before.
func TestFairMutexStoppedWithTheTurn(t *testing.T) {
	f, x, theirs, got := fairLine(t)
	x.proc.Stop(t)
	x.proc.AwaitStop(t)
	f.Unlock()
	require.True(t, f.State().Held, "it was handed to the stopped process")
	require.False(t, f.TryLock())
	require.Equal(t, 2, f.Queued(), "the second wait of the stopped process, and ours behind it")
	x.proc.Cont(t)
	for _, id := range theirs {
		require.Empty(t, x.wait(t, id).Panic)
		select {
		case <-got:
			require.Fail(t, "a later wait had the lock first")
		default:
		}
		x.must(t, orderFor("funlock", "f"))
	}
	<-got
	f.Unlock()
}

// TestFairMutexTurnPassesOn: when a wait with the turn gives up, the next wait of the process gets the turn. This
// also happens if the wait ends because its handle is closed, and wherever the wait is in the queue.
func TestFairMutexTurnPassesOn(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFairMutex(a, "f", nil)
	require.NoError(t, err)
	closed, err := prims.OpenFairMutex(a, "f", nil)
	require.NoError(t, err)
	f.Lock()
	type wait struct {
		cancel context.CancelFunc
		done   chan error
	}
	var waits []wait
	for i := range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		w := wait{cancel, make(chan error, 1)}
		by := f
		if i%3 == 2 {
			by = closed
		}
		go func() { w.done <- by.LockContext(ctx) }()
		eventually(t, "it waits", f.String, func() bool { return f.Waiters() == i+1 && f.Queued() == i+1 })
		waits = append(waits, w)
	}
	end := func(i int) {
		waits[i].cancel()
		require.ErrorIs(t, <-waits[i].done, context.Canceled)
	}
	end(0) // this waiter had the turn
	end(3) // this waiter waited for the turn
	require.NoError(t, closed.Close())
	require.Error(t, <-waits[2].done)
	require.Error(t, <-waits[5].done)
	require.Equal(t, 2, f.Waiters())
	f.Unlock()
	require.NoError(t, <-waits[1].done)
	end(4) // this waiter waited for a hold of its own process to end
	require.Zero(t, f.Waiters())
	last := make(chan error, 1)
	go func() { last <- f.LockContext(t.Context()) }()
	eventually(t, "it waits", f.String, func() bool { return f.Waiters() == 1 && f.Queued() == 1 })
	f.Unlock() // ends the hold that was granted to waits[1]
	require.NoError(t, <-last)
	f.Unlock()
	require.True(t, f.TryLock())
	f.Unlock()
}

// TestMultiLockTurns: the goroutines that wait for a key of a MultiLock get the turn one after the other. Each
// key has a line of its own, even if keys share a bucket.
func TestMultiLockTurns(t *testing.T) {
	a := newArena(t, nil)
	x, err := prims.OpenMultiLock(a, "x", &prims.MultiLockOptions{Buckets: 1})
	require.NoError(t, err)
	const keys, goroutines = 3, 4
	var wg sync.WaitGroup
	var counts [keys]int
	for k := range uint64(keys) {
		for range goroutines {
			wg.Go(func() {
				for range 500 {
					h := x.Lock(k)
					counts[k]++
					runtime.Gosched()
					h.Unlock()
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, [keys]int{2000, 2000, 2000}, counts)
}

// TestWaitsForTheTurnAreSeen: tools show the goroutines that wait for the turn, and since when they wait.
func TestWaitsForTheTurnAreSeen(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFairMutex(a, "f", nil)
	require.NoError(t, err)
	f.Lock()
	before := shmsync.Monotonic()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			f.Lock()
			f.Unlock()
		})
	}
	var waits []arenakernel.Wait
	eventually(t, "two waits have a date", f.String, func() bool {
		waits = slices.DeleteFunc(countsLook(t, nameOf(a), "f").Waits, func(w arenakernel.Wait) bool {
			return w.How != arenakernel.WaitParked || w.Since < before || w.Since > shmsync.Monotonic()
		})
		return len(waits) >= 2
	})
	f.Unlock()
	wg.Wait()
	require.Empty(t, countsLook(t, nameOf(a), "f").Waits)
}

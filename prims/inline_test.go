//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// TestAllocations: a call that finds no waiter allocates nothing. Once the pools are filled, a wait
// that cannot be cancelled allocates nothing either.
func TestAllocations(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	checked := newMutex(t, a, &prims.MutexOptions{Checked: true})
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	f.Post() // so that Wait, which may be called first, does not block
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, fn := range map[string]func(){
		"Lock":        func() { m.Lock(); m.Unlock() },
		"Checked":     func() { checked.Lock(); checked.Unlock() },
		"LockContext": func() { m.LockContext(ctx); m.Unlock() },
		"TryLock":     func() { m.TryLock(); m.Unlock() },
		"TryLock no":  func() { m.Lock(); m.TryLock(); m.Unlock() },
		"Post":        func() { f.Post() },
		"Wait":        func() { f.Wait(1) },
		"Get":         func() { f.Get() },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, fn), name)
	}
}

func TestAllocationsContended(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	a := newArena(t, nil)
	for _, poller := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind the poller %v", poller), func(t *testing.T) {
			if poller {
				fillThreads(t, a)
			}
			m := newMutex(t, a, &prims.MutexOptions{Spin: -1})
			f, err := prims.OpenFutex(a, "", &prims.FutexOptions{Spin: -1})
			require.NoError(t, err)
			slept := 0
			hammer := func(turns int) {
				var wg sync.WaitGroup
				for range 6 {
					wg.Go(func() {
						for range turns {
							m.Lock()
							slept += min(m.Waiters(), 1)
							runtime.Gosched()
							m.Unlock()
						}
					})
					wg.Go(func() {
						for token := range uint64(turns) {
							f.Wait(token + 1)
						}
					})
				}
				wg.Go(func() {
					for f.Get() < uint64(turns) {
						f.Post()
						runtime.Gosched()
					}
				})
				wg.Wait()
			}
			hammer(200) // fills the pools of wait nodes
			const turns = 3000
			waitsAllocateNothing(t, 6*turns, 0.01, m.String, func() (waited int) {
				slept = 0
				hammer(turns)
				return slept
			})
		})
	}
}

// waitsAllocateNothing calls hammer again and again. In each round, hammer makes a number of turns and returns how
// many of them had a waiter. waitsAllocateNothing returns after a round with two properties: more than one turn in six
// had a waiter, and a turn made fewer allocations than the parameter most, on average. The bound is not 0, because
// hammer starts goroutines, and because the garbage collector empties pools. The test estimates the allocations of the
// periodic checks and subtracts them.
//
// One round is not enough. On a busy machine the goroutines may run one after the other, so that none waits. They may
// also run on Ps whose pools were never used. But if waits allocate, they do so in every round.
func waitsAllocateNothing(t *testing.T, turns int, most float64, words func() string, hammer func() (waited int)) {
	t.Helper()
	begun := time.Now()
	for round := 1; ; round++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		waited := hammer()
		checks := min(500*time.Since(start).Seconds(), float64(turns)/8) // an estimate for the periodic checks, ten a second for each waiter
		runtime.ReadMemStats(&after)
		perTurn := max(0, float64(after.Mallocs-before.Mallocs)-checks) / float64(turns)
		t.Logf("%d of %d turns had a waiter, %.4f allocations a turn", waited, turns, perTurn)
		if waited > turns/6 && perTurn < most {
			return
		}
		require.False(t, round >= 20 && time.Since(begun) > timeout(), "%d rounds: in none, turns had waiters and did not allocate\n%s", round, words())
	}
}

// fillThreads makes goroutines wait until no more waiters may sleep on threads. The next waiter
// then parks.
func fillThreads(t *testing.T, a *arena.Arena) {
	t.Helper()
	// Each goroutine waits for a lock of its own, because for one object at most GOMAXPROCS goroutines may sleep in
	// the kernel.
	var wg sync.WaitGroup
	var locks []*prims.FairMutex
	// A goroutine that comes while another one sleeps on its thread may park instead. So the loop
	// starts goroutines until enough of them sleep on threads.
	for asleep := 0; asleep < park.DirectMax; {
		require.Less(t, len(locks), 10*park.DirectMax, "they park, though threads are free")
		f, err := prims.OpenFairMutex(a, "", &prims.FairMutexOptions{Spin: -1})
		require.NoError(t, err)
		f.Lock()
		locks = append(locks, f)
		wg.Go(func() {
			f.Lock()
			f.Unlock()
		})
		eventually(t, "a thread is taken", f.String, func() bool { return f.Asleep() == 1 })
		asleep += 1 - prims.ParkedNodes(a, f.Offset())
	}
	t.Cleanup(func() {
		for _, f := range locks {
			f.Unlock()
		}
		wg.Wait()
	})
}

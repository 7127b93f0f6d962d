//go:build linux

package prims_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// parkOn makes a goroutine of this process wait for m with ctx, and returns when the goroutine
// parks.
func parkOn(t *testing.T, m *prims.Mutex, wg *sync.WaitGroup, ctx context.Context, got func(error)) {
	n := m.Parked()
	wg.Go(func() { got(m.LockContext(ctx)) })
	eventually(t, "a goroutine parks", m.String, func() bool { return m.Parked() == n+1 })
}

// starved returns when the goroutine that has been parked longest has waited long enough to be
// handed the lock.
func starved(m *prims.Mutex) {
	for shmsync.Monotonic()-m.Oldest() <= prims.StarveAfter {
		runtime.Gosched()
	}
}

// TestMutexHandsOverInsideAProcess makes goroutines of one process starve. Each release hands the
// lock to the goroutine that has waited longest. The wake word and the doorbell do not change,
// which shows that neither the kernel nor the poller takes part.
func TestMutexHandsOverInsideAProcess(t *testing.T) {
	a := newArena(t, nil)
	fillThreads(t, a)
	m := newMutex(t, a, &prims.MutexOptions{Spin: -1})
	m.Lock()
	const waiters = 8
	var order []int // guarded by: m
	var wg sync.WaitGroup
	for i := range waiters {
		parkOn(t, m, &wg, t.Context(), func(err error) {
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, i)
			if len(order) < waiters {
				starved(m)
				m.NextIsLocal()
			}
			m.Unlock()
		})
	}
	wake := m.WakeWord()
	_, rung := (*arenakernel.Arena)(a).Doorbell()
	starved(m)
	m.NextIsLocal()
	m.Unlock()
	eventually(t, "all but the last have it", m.String, func() bool { return m.Parked() == 0 })
	_, rungNow := (*arenakernel.Arena)(a).Doorbell()
	require.Equal(t, rung, rungNow, "the poller was woken")
	wg.Wait()
	require.Less(t, m.WakeWord()>>1-wake>>1, uint32(2), "only the last release owes a wake")
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
}

// TestMutexWakesAnyWaiterAtEveryOtherRelease makes goroutines of this process starve. Every second
// release wakes a waiter of any process, which may sleep in the kernel. The wake clears the
// announcement in the wake word, so the release must set it again. Otherwise no release would see the
// parked goroutines until the woken waiter has run.
func TestMutexWakesAnyWaiterAtEveryOtherRelease(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one P: no other goroutine runs between a release and the check after it
	a := newArena(t, nil)
	fillThreads(t, a)
	m := newMutex(t, a, &prims.MutexOptions{Spin: -1})
	m.Lock()
	const waiters = 5
	got, next, after := make(chan int), make(chan struct{}), make(chan uint32, waiters)
	var wg sync.WaitGroup
	for i := range waiters {
		parkOn(t, m, &wg, t.Context(), func(err error) {
			if err != nil {
				t.Error(err)
				return
			}
			got <- i
			<-next
			m.Unlock()
			after <- m.WakeWord()
		})
	}
	starved(m)
	m.NextIsLocal()
	m.Unlock()
	require.Equal(t, 0, <-got)
	m.NextIsForAll()
	for i, bumps := range []uint32{1, 0, 1} {
		starved(m)
		wake := m.WakeWord()
		next <- struct{}{}
		require.Equal(t, i+1, <-got, "the one that has waited for longest")
		word := <-after
		require.Equal(t, bumps, word>>1-wake>>1, "release %d", i)
		require.EqualValues(t, 1, word&1, "release %d: the others are announced", i)
	}
	next <- struct{}{}
	require.Equal(t, waiters-1, <-got)
	next <- struct{}{}
	wg.Wait()
	require.False(t, m.State().Held)
}

// TestMutexHandsOverBesideCancels: a waiter that was handed the lock has it, even if its context
// has ended. A waiter that gave up before is skipped.
func TestMutexHandsOverBesideCancels(t *testing.T) {
	a := newArena(t, nil)
	fillThreads(t, a)
	m := newMutex(t, a, &prims.MutexOptions{Spin: -1})
	m.Lock()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	parkOn(t, m, &wg, ctx, func(err error) {
		if err == nil {
			m.Unlock() // the lock was granted before the waiter saw the end of its context
		} else if err != context.Canceled {
			t.Error(err)
		}
	})
	got := make(chan error, 1)
	parkOn(t, m, &wg, t.Context(), func(err error) {
		if err == nil {
			m.Unlock()
		}
		got <- err
	})
	starved(m)
	m.NextIsLocal()
	wg.Go(cancel)
	m.Unlock()
	require.NoError(t, <-got)
	wg.Wait()
	require.False(t, m.State().Held)
}

// TestMutexTryLockAfterAReservationForAStoppedProcess: a lock is reserved for a waiter that is
// stopped, and no other call waits. TryLock gets the lock.
func TestMutexTryLockAfterAReservationForAStoppedProcess(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Spin: -1})
	require.NoError(t, err)
	m.Lock()
	x := remoteActor(t, a, "stopped")
	id := x.blocked(t, order{Op: "lock", Object: "m"})
	x.proc.Stop(t)
	for p := range a.Participants() {
		if p.Label == "stopped" {
			m.AskFor(arenakernel.Participant(p).Name())
		}
	}
	m.Unlock()
	require.False(t, m.State().Held)
	eventually(t, "TryLock gets it", m.String, m.TryLock)
	m.Unlock()
	x.proc.Cont(t)
	require.Empty(t, x.wait(t, id).Panic)
	x.must(t, order{Op: "unlock", Object: "m"})
}

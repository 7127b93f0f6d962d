//go:build linux

package prims_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// TestSetSpinOf: in an object of each kind, SetSpinOf changes the word that the option Spin sets, and no other
// word.
func TestSetSpinOf(t *testing.T) {
	type opened interface{ Offset() arena.Offset }
	for name, open := range map[string]func(a *arena.Arena, spin time.Duration) (opened, error){
		"barrier": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenBarrier(a, "", 2, &prims.BarrierOptions{Spin: d})
		},
		"cond": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenCond(a, "", new(sync.Mutex), &prims.CondOptions{Spin: d})
		},
		"event": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenEvent(a, "", &prims.EventOptions{Spin: d})
		},
		"event, auto-reset": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenEvent(a, "", &prims.EventOptions{Mode: prims.EventAutoReset, Spin: d})
		},
		"fairmutex": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenFairMutex(a, "", &prims.FairMutexOptions{Spin: d})
		},
		"future": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenFuture(a, "", &prims.FutureOptions{Spin: d})
		},
		"futex": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenFutex(a, "", &prims.FutexOptions{Spin: d})
		},
		"latch": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenLatch(a, "", 2, &prims.LatchOptions{Spin: d})
		},
		"mutex": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenMutex(a, "", &prims.MutexOptions{Spin: d})
		},
		"once": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenOnce(a, "", &prims.OnceOptions{Spin: d})
		},
		"queue": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenQueue[uint64](a, "", 4, &prims.QueueOptions{Spin: d})
		},
		"rwmutex": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenRWMutex(a, "", &prims.RWMutexOptions{Spin: d})
		},
		"semaphore": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenSemaphore(a, "", 2, &prims.SemaphoreOptions{Spin: d})
		},
		"sequencer": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenSequencer(a, "", &prims.SequencerOptions{Spin: d})
		},
		"signalwaker": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenSignalWaker(a, "", &prims.SignalWakerOptions{Signals: 4, Spin: d})
		},
		"spinlock": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenSpinLock(a, "", &prims.SpinLockOptions{Spin: d})
		},
		"rwspinlock": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenRWSpinLock(a, "", &prims.RWSpinLockOptions{Spin: d})
		},
		"cohortmutex": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenCohortMutex(a, "", &prims.CohortMutexOptions{Spin: d})
		},
		"multilock": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenMultiLock(a, "", &prims.MultiLockOptions{Spin: d})
		},
		"waitgroup": func(a *arena.Arena, d time.Duration) (opened, error) {
			return prims.OpenWaitGroup(a, "", &prims.WaitGroupOptions{Spin: d})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			const spin = 7 * time.Microsecond
			x, err := open(a, 0)
			require.NoError(t, err)
			want, err := open(a, spin)
			require.NoError(t, err)
			body := func(x opened) []uint64 {
				o, err := a.Object(x.Offset())
				require.NoError(t, err)
				return prims.BodyOf(a, arenakernel.Object(o))
			}
			require.NotEqual(t, body(want), body(x))
			o, err := a.Object(x.Offset())
			require.NoError(t, err)
			require.NoError(t, prims.SetSpinOf(a, o, spin))
			require.Equal(t, body(want), body(x))
		})
	}
}

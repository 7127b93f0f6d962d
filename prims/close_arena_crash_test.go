//go:build linux && crashpoint

package prims_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// makers has for each kind a function that makes an object and returns the error.
var makers = map[string]func(a *arena.Arena, name string) error{
	"barrier":      func(a *arena.Arena, name string) error { _, err := prims.OpenBarrier(a, name, 1, nil); return err },
	"cohort mutex": func(a *arena.Arena, name string) error { _, err := prims.OpenCohortMutex(a, name, nil); return err },
	"cond": func(a *arena.Arena, name string) error {
		_, err := prims.OpenCond(a, name, &sync.Mutex{}, nil)
		return err
	},
	"event":      func(a *arena.Arena, name string) error { _, err := prims.OpenEvent(a, name, nil); return err },
	"fair mutex": func(a *arena.Arena, name string) error { _, err := prims.OpenFairMutex(a, name, nil); return err },
	"futex":      func(a *arena.Arena, name string) error { _, err := prims.OpenFutex(a, name, nil); return err },
	"future":     func(a *arena.Arena, name string) error { _, err := prims.OpenFuture(a, name, nil); return err },
	"latch":      func(a *arena.Arena, name string) error { _, err := prims.OpenLatch(a, name, 1, nil); return err },
	"multilock":  func(a *arena.Arena, name string) error { _, err := prims.OpenMultiLock(a, name, nil); return err },
	"mutex":      func(a *arena.Arena, name string) error { _, err := prims.OpenMutex(a, name, nil); return err },
	"once":       func(a *arena.Arena, name string) error { _, err := prims.OpenOnce(a, name, nil); return err },
	"queue":      func(a *arena.Arena, name string) error { _, err := prims.OpenQueue[int](a, name, 4, nil); return err },
	"rwmutex":    func(a *arena.Arena, name string) error { _, err := prims.OpenRWMutex(a, name, nil); return err },
	"reader/writer spin lock": func(a *arena.Arena, name string) error {
		_, err := prims.OpenRWSpinLock(a, name, nil)
		return err
	},
	"semaphore":    func(a *arena.Arena, name string) error { _, err := prims.OpenSemaphore(a, name, 1, nil); return err },
	"sequencer":    func(a *arena.Arena, name string) error { _, err := prims.OpenSequencer(a, name, nil); return err },
	"signal waker": func(a *arena.Arena, name string) error { _, err := prims.OpenSignalWaker(a, name, nil); return err },
	"spin lock":    func(a *arena.Arena, name string) error { _, err := prims.OpenSpinLock(a, name, nil); return err },
	"synchronized": func(a *arena.Arena, name string) error { _, err := prims.OpenSynchronized(a, name, 0, nil); return err },
	"waitable": func(a *arena.Arena, name string) error {
		_, err := prims.OpenWaitable(a, name, false, prims.Rules[bool, uint8]{Claim: func(*bool, uint8) bool { return true }}, nil)
		return err
	},
	"waitgroup": func(a *arena.Arena, name string) error { _, err := prims.OpenWaitGroup(a, name, nil); return err },
}

// TestCloseLeavesNoAnonymousObject checks that no anonymous object is left if the arena is closed while a call creates
// the object. Close waits for the call. The call returns no handle, so nobody could find the object. So the call
// deletes the object.
func TestCloseLeavesNoAnonymousObject(t *testing.T) {
	for kind, makes := range makers {
		t.Run(kind, func(t *testing.T) {
			a, b := twoOpenings(t)
			passed := crashpoint.HitCount("arena.object.before_publish")
			var closed <-chan error
			crashpoint.ArmFunc("arena.object.before_publish", 1, func() {
				closed = closing(t, a)
				eventually(t, "Close waits for the call", func() string { return words(b) }, func() bool {
					err := (*arenakernel.Arena)(a).BeginCall("test")
					if err == nil {
						(*arenakernel.Arena)(a).EndCall()
					}
					return err != nil
				})
			})
			defer crashpoint.Disarm()
			require.ErrorIs(t, makes(a, ""), shmsync.ErrClosed)
			require.Equal(t, passed+1, crashpoint.HitCount("arena.object.before_publish"))
			require.NoError(t, <-closed)
			for o := range b.Objects() {
				require.Fail(t, "an object is left", "%v %v", o.Kind, o)
			}
			require.Zero(t, b.Stats().BytesUsed, words(b))
			require.NoError(t, b.Check())
		})
	}
}

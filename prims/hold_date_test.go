//go:build linux

package prims_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// TestInspectorDatesNoHoldByAWaitThatIsOver: an Inspector reads the waits for a lock, and later the
// body of the lock. In between, a wait ends and a new hold begins. The Inspector must not report the
// date of that wait as the time at which the new hold began.
func TestInspectorDatesNoHoldByAWaitThatIsOver(t *testing.T) {
	// look opens an Inspector that has read the waits, but not the body of the lock.
	look := func(t *testing.T, w *arenatest.World, a *arena.Arena) *arenakernel.Inspector {
		_, err := arena.Value[[200 << 10]byte](a, "large") // the value is in other chunks of the file than the lock
		require.NoError(t, err)
		ins, err := arenakernel.Inspect(w.Name())
		require.NoError(t, err)
		t.Cleanup(func() { ins.Close() })
		ins.Participants()
		for o := range a.Objects() {
			if o.Name == "large" {
				ins.Look(arenakernel.Object(o))
			}
		}
		return ins
	}
	for _, name := range []string{"FairMutex", "MultiLock", "Semaphore"} {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			tool := w.Join("tool")
			alice, err := metLocks[name](w.Join("alice"))
			require.NoError(t, err)
			bobs := w.Join("bob")
			bob, err := metLocks[name](bobs)
			require.NoError(t, err)
			alice.Lock()
			holds := make(chan struct{})
			go func() {
				bob.Lock()
				close(holds)
			}()
			awaitDate(t, tool, alice.Offset())
			ins := look(t, w, tool)
			released := shmsync.Monotonic()
			alice.Unlock()
			<-holds
			o, err := tool.Object(alice.Offset())
			require.NoError(t, err)
			for _, h := range ins.Look(arenakernel.Object(o)).Holds {
				if h.Owner == bobs.Self() && h.Since != 0 {
					require.GreaterOrEqual(t, h.Since, released, "%+v", h)
				}
			}
			bob.Unlock()
		})
	}
	t.Run("readers", func(t *testing.T) {
		w := arenatest.New(t, nil)
		tool := w.Join("tool")
		alice, err := prims.OpenRWMutex(w.Join("alice"), "x", nil)
		require.NoError(t, err)
		bob, err := prims.OpenRWMutex(w.Join("bob"), "x", nil)
		require.NoError(t, err)
		carols := w.Join("carol")
		carol, err := prims.OpenRWMutex(carols, "x", nil)
		require.NoError(t, err)
		o, err := tool.Object(alice.Offset())
		require.NoError(t, err)
		begin := func() (done chan struct{}) {
			done = make(chan struct{})
			go func() {
				defer close(done)
				if bob.LockContext(context.Background()) == nil { // if not, the test has already failed
					bob.Unlock()
				}
			}()
			require.Eventually(t, func() bool {
				for _, h := range tool.Inspect(o).Holds {
					if h.Mode == arena.HoldShared && h.Since != 0 {
						return true
					}
				}
				return false
			}, time.Minute, time.Millisecond, "the reader has no date")
			return done
		}
		alice.RLock()
		done := begin()
		ins := look(t, w, tool)
		alice.RUnlock()
		<-done
		again := shmsync.Monotonic()
		carol.RLock()
		done = begin()
		for _, h := range ins.Look(arenakernel.Object(o)).Holds {
			if h.Owner == carols.Self() && h.Since != 0 {
				require.GreaterOrEqual(t, h.Since, again, "%+v", h)
			}
		}
		carol.RUnlock()
		<-done
	})
}

// TestFirstSince: FirstSince converts a stored date to a time in nanoseconds, rounded up. For a very old date it
// returns 0 or a later time. It never returns an earlier time.
func TestFirstSince(t *testing.T) {
	const ms, wrap = int64(time.Millisecond), int64(1) << 32
	for _, now := range []int64{1, 5 * ms, 3600e3 * ms, (wrap - 1) * ms, wrap * ms, (wrap + 1) * ms, (3*wrap + 17) * ms} {
		for _, age := range []int64{0, 1, ms - 1, ms, 10 * ms, 86400e3 * ms, (wrap/2 - 2) * ms, (wrap/2 + 1) * ms, (wrap - 1) * ms, wrap * ms, (wrap + 1) * ms, (2*wrap + 5) * ms} {
			if age >= now {
				continue
			}
			since := prims.FirstSince(prims.FirstDate(now-age), now)
			if since == 0 {
				require.GreaterOrEqual(t, age, (wrap/2-2)*ms, "a date %d ns before %d is unknown", age, now)
				continue
			}
			require.GreaterOrEqual(t, since, now-age, "%d ns before %d", age, now)
			require.LessOrEqual(t, since, now+2*ms, "%d ns before %d", age, now)
			if age < (wrap/2-2)*ms {
				require.LessOrEqual(t, since, now-age+2*ms, "%d ns before %d", age, now)
			}
		}
	}
	require.Zero(t, prims.FirstSince(0, 3600e3*ms), "no date")
	require.Zero(t, prims.FirstSince(prims.FirstDate(3601e3*ms), 3600e3*ms), "a date of the future")
}

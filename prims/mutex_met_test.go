//go:build linux

package prims_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/prims"
)

type metLock interface {
	Lock()
	Unlock()
	Offset() arena.Offset
}

// metLocks are the locks whose holds waiters date.
var metLocks = map[string]func(a *arena.Arena) (metLock, error){
	"Mutex":   func(a *arena.Arena) (metLock, error) { return prims.OpenMutex(a, "x", nil) },
	"RWMutex": func(a *arena.Arena) (metLock, error) { return prims.OpenRWMutex(a, "x", nil) },
	"CohortMutex": func(a *arena.Arena) (metLock, error) {
		return prims.OpenCohortMutex(a, "x", &prims.CohortMutexOptions{Nodes: 1})
	},
}

// exclusiveOf is the exclusive hold of an object, or one without an owner.
func exclusiveOf(t testing.TB, a *arena.Arena, off arena.Offset) arena.Hold {
	o, err := a.Object(off)
	require.NoError(t, err)
	for _, h := range a.Inspect(o).Holds {
		if h.Mode == arena.HoldExclusive {
			return h
		}
	}
	return arena.Hold{}
}

// awaitDate waits until the exclusive hold of an object has a date.
func awaitDate(t testing.TB, a *arena.Arena, off arena.Offset) (h arena.Hold) {
	t.Helper()
	require.Eventually(t, func() bool {
		h = exclusiveOf(t, a, off)
		return h.Since != 0
	}, time.Minute, time.Millisecond, "the hold %+v has no date", h)
	return h
}

// In an arena without counters the first waiter dates a hold from below. The date stays while the
// hold lasts, and the next hold has a later one.
func TestHoldIsDatedByItsFirstWaiter(t *testing.T) {
	for name, open := range metLocks {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			tool := w.Join("tool")
			var locks []metLock
			for _, label := range []string{"alice", "bob", "carol"} {
				l, err := open(w.Join(label))
				require.NoError(t, err)
				locks = append(locks, l)
			}
			off := locks[0].Offset()
			before := shmsync.Monotonic()
			locks[0].Lock()
			require.Zero(t, exclusiveOf(t, tool, off).Since, "nobody has met the hold")
			holds, next, done := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
			for _, l := range locks[1:] {
				go func() {
					l.Lock()
					holds <- struct{}{}
					<-next
					l.Unlock()
					done <- struct{}{}
				}()
			}
			h := awaitDate(t, tool, off)
			require.True(t, h.AtLeast)
			require.GreaterOrEqual(t, h.Since, before)
			require.LessOrEqual(t, h.Since, shmsync.Monotonic())
			o, err := tool.Object(off)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(tool.Inspect(o).Waits) == 2 }, time.Minute, time.Millisecond)
			require.Equal(t, h, exclusiveOf(t, tool, off), "a second waiter has changed the date")

			close(next)
			released := shmsync.Monotonic()
			locks[0].Unlock()
			<-holds
			<-holds
			<-done
			<-done
			locks[0].Lock()
			require.Zero(t, exclusiveOf(t, tool, off).Since, "nobody has met that hold")
			go func() {
				locks[1].Lock()
				locks[1].Unlock()
				done <- struct{}{}
			}()
			require.GreaterOrEqual(t, awaitDate(t, tool, off).Since, released)
			locks[0].Unlock()
			<-done
		})
	}
}

// Three participants pass a lock around, each with one goroutine. The date of each hold is later
// than the end of the hold before.
func TestHoldIsNeverDatedTooEarly(t *testing.T) {
	for name, open := range metLocks {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			tool := w.Join("tool")
			var (
				off      arena.Offset
				hold     atomic.Int64 // number of the present hold, and negative between two holds
				released atomic.Int64 // when the hold before ended
				checked  atomic.Int64 // number of the last hold that the test has checked
				stop     atomic.Bool
			)
			ended := make(chan struct{}, 3)
			for _, label := range []string{"alice", "bob", "carol"} {
				l, err := open(w.Join(label))
				require.NoError(t, err)
				off = l.Offset()
				go func() {
					defer func() { ended <- struct{}{} }()
					for !stop.Load() {
						l.Lock()
						n := checked.Load() + 1
						hold.Store(n)
						for checked.Load() < n && !stop.Load() {
							runtime.Gosched()
						}
						released.Store(shmsync.Monotonic())
						hold.Store(-1)
						l.Unlock()
					}
				}()
			}
			for n := int64(1); n <= 200; n++ {
				require.Eventually(t, func() bool { return hold.Load() == n }, time.Minute, 10*time.Microsecond, "hold %d does not begin", n)
				h := awaitDate(t, tool, off)
				require.Equal(t, n, hold.Load())
				require.True(t, h.AtLeast)
				require.GreaterOrEqual(t, h.Since, released.Load(), "hold %d is dated before its beginning", n)
				checked.Store(n)
			}
			stop.Store(true)
			for range 3 {
				<-ended
			}
		})
	}
}

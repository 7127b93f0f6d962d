//go:build linux

package prims_test

import (
	"cmp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

type metLock interface {
	Lock()
	Unlock()
	Offset() arena.Offset
}

// metLocks opens the locks whose holds get a date while a call waits. The date is a time at which the hold had
// already begun.
var metLocks = map[string]func(a *arena.Arena) (metLock, error){
	"Mutex":   func(a *arena.Arena) (metLock, error) { return prims.OpenMutex(a, "x", nil) },
	"RWMutex": func(a *arena.Arena) (metLock, error) { return prims.OpenRWMutex(a, "x", nil) },
	"CohortMutex": func(a *arena.Arena) (metLock, error) {
		return prims.OpenCohortMutex(a, "x", &prims.CohortMutexOptions{Nodes: 1})
	},
	"SpinLock":   func(a *arena.Arena) (metLock, error) { return prims.OpenSpinLock(a, "x", nil) },
	"RWSpinLock": func(a *arena.Arena) (metLock, error) { return prims.OpenRWSpinLock(a, "x", nil) },
	"FairMutex":  func(a *arena.Arena) (metLock, error) { return prims.OpenFairMutex(a, "x", nil) },
	"MultiLock": func(a *arena.Arena) (metLock, error) {
		x, err := prims.OpenMultiLock(a, "x", &prims.MultiLockOptions{Buckets: 1})
		return &metKey{MultiLock: x}, err
	},
	"Semaphore": func(a *arena.Arena) (metLock, error) {
		x, err := prims.OpenSemaphore(a, "x", 1, nil)
		return metPermit{x}, err
	},
}

// metRounds says how many holds TestHoldIsNeverDatedTooEarly dates, for the locks whose waiters store the date at once.
// For every other lock the test dates only 20 holds, because the date may have to wait for a periodic check.
var metRounds = map[string]int64{"Mutex": 200, "RWMutex": 200, "CohortMutex": 200, "SpinLock": 200}

// metByChecks are the locks for which a periodic check may date a hold for which no call waits: the check may still run
// for a moment after the wait for an earlier hold has ended.
var metByChecks = map[string]bool{"SpinLock": true, "RWSpinLock": true}

// metKey uses a key of a MultiLock as a lock.
type metKey struct {
	*prims.MultiLock
	hold prims.Hold
}

func (k *metKey) Lock()   { k.hold = k.MultiLock.Lock(7) }
func (k *metKey) Unlock() { k.hold.Unlock() }

// metPermit uses a Semaphore with one permit as a lock.
type metPermit struct{ *prims.Semaphore }

func (p metPermit) Lock()   { p.Acquire(1) }
func (p metPermit) Unlock() { p.Release(1) }

// exclusiveOf returns the exclusive hold of an object. If the object has none, the result is zero.
func exclusiveOf(t testing.TB, a *arena.Arena, off arena.Offset) arena.Hold {
	o, err := a.Object(off)
	require.NoError(t, err)
	for _, h := range a.Inspect(o).Holds {
		if h.Mode == arena.HoldExclusive || h.Mode == arena.HoldPermits {
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
	}, proctest.Scale(time.Minute), time.Millisecond, "the hold %+v has no date", h)
	return h
}

// TestHoldIsDatedByItsFirstWaiter checks that a hold gets a date when a call begins to wait for the lock, in an arena
// without counters. A second waiter does not change the date, and the next hold gets a later date.
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
			require.Zero(t, exclusiveOf(t, tool, off).Since, "no wait has stored a date for the hold")
			holds, next, done := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
			wait := func(l metLock) {
				l.Lock()
				holds <- struct{}{}
				<-next
				l.Unlock()
				done <- struct{}{}
			}
			go wait(locks[1])
			h := awaitDate(t, tool, off)
			go wait(locks[2])
			require.True(t, h.AtLeast)
			require.GreaterOrEqual(t, h.Since, before)
			require.LessOrEqual(t, h.Since, shmsync.Monotonic()+int64(time.Millisecond)) // rounded up by some locks
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
			if !metByChecks[name] {
				require.Zero(t, exclusiveOf(t, tool, off).Since, "no wait has stored a date for that hold")
			}
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

// TestHoldIsNeverDatedTooEarly checks that the date of each hold is later than the end of the hold before it, when
// three participants hold a lock in turn.
func TestHoldIsNeverDatedTooEarly(t *testing.T) {
	for name, open := range metLocks {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			tool := w.Join("tool")
			var off arena.Offset
			var released atomic.Int64 // when the last hold ended
			began, goOn, stop := make(chan struct{}), make(chan struct{}), make(chan struct{})
			ended := make(chan struct{}, 3)
			for _, label := range []string{"alice", "bob", "carol"} {
				l, err := open(w.Join(label))
				require.NoError(t, err)
				off = l.Offset()
				go func() {
					defer func() { ended <- struct{}{} }()
					for stopped := false; !stopped; {
						l.Lock()
						select {
						case began <- struct{}{}:
							<-goOn
						case <-stop:
							stopped = true
						}
						released.Store(shmsync.Monotonic())
						l.Unlock()
					}
				}()
			}
			rounds := cmp.Or(metRounds[name], 20)
			if !proctest.Long() {
				rounds /= 4
			}
			for n := range rounds {
				<-began
				h := awaitDate(t, tool, off)
				require.True(t, h.AtLeast)
				require.GreaterOrEqual(t, h.Since, released.Load(), "hold %d is dated before its beginning", n)
				goOn <- struct{}{}
			}
			close(stop)
			for range 3 {
				<-ended
			}
		})
	}
}

// metReaders is a lock that also has readers.
type metReaders interface {
	metLock
	RLock()
	RUnlock()
}

// metReading are the locks for which a waiting writer stores the date of the readers' holds.
var metReading = map[string]func(a *arena.Arena) (metReaders, error){
	"RWMutex":    func(a *arena.Arena) (metReaders, error) { return prims.OpenRWMutex(a, "x", nil) },
	"RWSpinLock": func(a *arena.Arena) (metReaders, error) { return prims.OpenRWSpinLock(a, "x", nil) },
}

// TestReadersAreDatedByAWriter checks that a writer that waits for readers stores the date of their holds. Holds of
// later readers do not get that date.
func TestReadersAreDatedByAWriter(t *testing.T) {
	for name, open := range metReading {
		t.Run(name, func(t *testing.T) { testReadersAreDated(t, open) })
	}
}

func testReadersAreDated(t *testing.T, openLock func(a *arena.Arena) (metReaders, error)) {
	w := arenatest.New(t, nil)
	tool := w.Join("tool")
	open := func(label string) metReaders {
		m, err := openLock(w.Join(label))
		require.NoError(t, err)
		return m
	}
	alice, bob, carol := open("alice"), open("bob"), open("carol")
	readers := func() (all []arena.Hold) {
		o, err := tool.Object(alice.Offset())
		require.NoError(t, err)
		for _, h := range tool.Inspect(o).Holds {
			if h.Mode == arena.HoldShared {
				all = append(all, h)
			}
		}
		return all
	}
	for range 3 {
		alice.RLock()
		bob.RLock()
		require.Len(t, readers(), 2)
		for _, h := range readers() {
			require.Zero(t, h.Since, "no writer waits")
		}
		before := shmsync.Monotonic()
		done := make(chan struct{})
		go func() {
			defer close(done)
			carol.Lock()
			carol.Unlock()
		}()
		dated := func() bool {
			for _, h := range readers() {
				if h.Since == 0 {
					return false
				}
				require.True(t, h.AtLeast)
				require.GreaterOrEqual(t, h.Since, before)
				require.LessOrEqual(t, h.Since, shmsync.Monotonic())
			}
			return true
		}
		require.Eventually(t, dated, time.Minute, time.Millisecond, "the readers %+v have no dates", readers())
		alice.RUnlock()
		require.Eventually(t, func() bool { return len(readers()) == 1 && dated() }, time.Minute, time.Millisecond)
		bob.RUnlock()
		<-done
	}
}

// TestWriterIsDatedByAReader checks that a waiting reader stores the date of the writer's hold. The next hold does
// not get that date.
func TestWriterIsDatedByAReader(t *testing.T) {
	for _, name := range []string{"RWSpinLock"} {
		t.Run(name, func(t *testing.T) {
			openLock := metReading[name]
			w := arenatest.New(t, nil)
			tool := w.Join("tool")
			alice, err := openLock(w.Join("alice"))
			require.NoError(t, err)
			bob, err := openLock(w.Join("bob"))
			require.NoError(t, err)
			carol, err := openLock(w.Join("carol"))
			require.NoError(t, err)
			for round := range 3 {
				before := shmsync.Monotonic()
				alice.Lock()
				if round == 0 {
					require.Zero(t, exclusiveOf(t, tool, alice.Offset()).Since, "nobody waits")
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					bob.RLock()
					bob.RUnlock()
				}()
				h := awaitDate(t, tool, alice.Offset())
				require.True(t, h.AtLeast)
				require.GreaterOrEqual(t, h.Since, before)
				require.LessOrEqual(t, h.Since, shmsync.Monotonic())
				writer := make(chan struct{})
				go func() {
					defer close(writer)
					carol.Lock()
					carol.Unlock()
				}()
				o, err := tool.Object(alice.Offset())
				require.NoError(t, err)
				require.Eventually(t, func() bool { return len(tool.Inspect(o).Waits) == 2 }, time.Minute, time.Millisecond)
				if round == 0 { // in a later round, a periodic check of the round before may still run
					require.Equal(t, h.Since, exclusiveOf(t, tool, alice.Offset()).Since, "a writer that came later has changed the date")
				}
				alice.Unlock()
				<-done
				<-writer
			}
		})
	}
}

// TestReaderDatesTheWriter checks that the periodic check of a waiting reader of an RWMutex stores the date of the
// writer's hold. The next hold does not get that date. The test makes the holds of the writers' mutex in the RWMutex
// biased first.
func TestReaderDatesTheWriter(t *testing.T) {
	w := arenatest.New(t, nil)
	tool := w.Join("tool")
	alice, err := prims.OpenRWMutex(w.Join("alice"), "x", nil)
	require.NoError(t, err)
	bob, err := prims.OpenRWMutex(w.Join("bob"), "x", nil)
	require.NoError(t, err)
	for range 200 { // so often that the holds of the writers' mutex become biased
		alice.Lock()
		alice.Unlock()
	}
	for range 3 {
		before := shmsync.Monotonic()
		alice.Lock()
		read := make(chan struct{})
		go func() {
			bob.RLock()
			bob.RUnlock()
			close(read)
		}()
		h := awaitDate(t, tool, alice.Offset())
		require.True(t, h.AtLeast)
		require.GreaterOrEqual(t, h.Since, before)
		require.LessOrEqual(t, h.Since, shmsync.Monotonic())
		alice.Unlock()
		<-read
	}
}

//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// countsArena joins a new arena and removes it after the test. If counted is set, the objects in
// the arena count their operations.
func countsArena(t *testing.T, counted bool) (a *arena.Arena, name string) {
	t.Helper()
	name = fmt.Sprintf("shmsync-counts.%d.%s", os.Getpid(), t.Name()[4:])
	a, err := arena.Create(name, &arena.Options{Size: 1 << 20, MaxParticipants: 8, Counted: counted})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, shm.Remove(name))
	})
	return a, name
}

func countsLook(t *testing.T, name, object string) arenakernel.Inspection {
	t.Helper()
	ins, err := arenakernel.Inspect(name)
	require.NoError(t, err)
	defer ins.Close()
	for _, o := range ins.Objects() {
		if o.Name == object {
			return ins.Look(o.Object)
		}
	}
	require.Fail(t, "no object "+object)
	return arenakernel.Inspection{}
}

func init() {
	// The process counts/contend locks and unlocks many times, at the same time as its parent.
	proctest.Register("counts/contend", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		m, err := prims.OpenMutex(a, "m", nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		for {
			var n int
			c.Recv(&n)
			if n == 0 { // hold the lock and stay
				m.Lock()
				c.Ready()
				continue
			}
			for range n {
				m.Lock()
				m.Unlock()
			}
			c.Ready()
		}
	})
}

// TestCountsMutex: the counters of a Mutex have the number of acquisitions by all processes, and
// the time at which the present hold began. A recovery after a death is counted, too.
func TestCountsMutex(t *testing.T) {
	a, name := countsArena(t, true)
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	child := proctest.Start(t, "counts/contend", proctest.Params(name))
	child.Await(t)

	before := shmsync.Monotonic()
	m.Lock()
	require.False(t, m.TryLock())
	i := countsLook(t, name, "m")
	require.Equal(t, arenakernel.Counts{Acquired: 1}, *i.Counts)
	require.Len(t, i.Holds, 1)
	require.GreaterOrEqual(t, i.Holds[0].Since, before)
	require.LessOrEqual(t, i.Holds[0].Since, shmsync.Monotonic())
	require.Empty(t, i.Holds[0].Note, "no hold is biased")

	// When the child is told to lock the Mutex again, it first has to wait.
	child.Send(1)
	eventually(t, "somebody waits", m.String, func() bool { return len(countsLook(t, name, "m").Waits) == 1 })
	m.Unlock()
	child.Await(t)
	i = countsLook(t, name, "m")
	require.EqualValues(t, 2, i.Counts.Acquired)
	require.EqualValues(t, 1, i.Counts.Contended)
	require.GreaterOrEqual(t, i.Counts.Slept, uint64(1))
	require.GreaterOrEqual(t, i.Counts.Woken, uint64(1))
	require.Empty(t, i.Holds)

	require.True(t, m.TryLock())
	m.Unlock()
	const n = 3000
	child.Send(n)
	for range n {
		m.Lock()
		m.Unlock()
	}
	child.Await(t)
	i = countsLook(t, name, "m")
	require.EqualValues(t, 3+2*n, i.Counts.Acquired)
	require.LessOrEqual(t, i.Counts.Contended, i.Counts.Acquired)

	child.Send(0)
	child.Await(t)
	child.Kill(t)
	require.ErrorIs(t, m.LockContext(context.Background()), shmsync.ErrOwnerDead)
	i = countsLook(t, name, "m")
	require.EqualValues(t, 1, i.Counts.Recovered)
	require.ErrorIs(t, i.Err, shmsync.ErrOwnerDead)
	require.NoError(t, m.Recover(func() error { return nil }))
	m.Lock()
	m.Unlock()
	require.Panics(t, m.Unlock, "an Unlock of a free Mutex panics")
}

// TestCountsQueues: objects with a queue count their waits, and a FairMutex records when a hold
// began.
func TestCountsQueues(t *testing.T) {
	a, name := countsArena(t, true)
	f, err := prims.OpenFairMutex(a, "fair", nil)
	require.NoError(t, err)
	s, err := prims.OpenSemaphore(a, "sem", 2, nil)
	require.NoError(t, err)
	x, err := prims.OpenMultiLock(a, "multi", nil)
	require.NoError(t, err)
	w, err := prims.OpenRWMutex(a, "rw", nil)
	require.NoError(t, err)
	before := shmsync.Monotonic()
	f.Lock()
	require.NoError(t, s.AcquireContext(context.Background(), 2))
	h := x.Lock(1)
	w.Lock()
	var wg sync.WaitGroup
	wg.Go(func() { f.Lock() })
	wg.Go(func() { s.AcquireContext(context.Background(), 1) })
	wg.Go(func() { x.Lock(1).Unlock() })
	for _, object := range []string{"fair", "sem", "multi"} {
		eventually(t, "somebody waits for "+object, f.String, func() bool {
			i := countsLook(t, name, object)
			return len(i.Waits) == 1 && i.Waits[0].How != arenakernel.WaitAwake
		})
		require.EqualValues(t, 1, countsLook(t, name, object).Counts.Contended, object)
	}
	require.GreaterOrEqual(t, countsLook(t, name, "fair").Holds[0].Since, before)
	require.GreaterOrEqual(t, countsLook(t, name, "rw").Holds[0].Since, before)
	handed := shmsync.Monotonic()
	f.Unlock()
	s.Release(1)
	h.Unlock()
	wg.Wait()
	require.GreaterOrEqual(t, countsLook(t, name, "fair").Holds[0].Since, handed)
	for _, object := range []string{"fair", "sem", "multi"} {
		c := countsLook(t, name, object).Counts
		require.EqualValues(t, 2, c.Acquired, object)
		require.EqualValues(t, 1, c.SpinsPaid+c.Slept, object)
	}
	w.Unlock()
	require.EqualValues(t, 1, countsLook(t, name, "rw").Counts.Acquired)
}

// TestCountsOff: in an arena that does not count, an object has no counters, and operations do not
// write any.
func TestCountsOff(t *testing.T) {
	a, name := countsArena(t, false)
	require.False(t, a.Counted())
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	m.Lock()
	i := countsLook(t, name, "m")
	require.Nil(t, i.Counts)
	require.Zero(t, i.Holds[0].Since)
	m.Unlock()
	b, err := arena.Open(name, &arena.Options{Counted: true})
	require.NoError(t, err)
	require.False(t, b.Counted(), "an arena that was created without counters keeps none")
	require.NoError(t, b.Close())
}

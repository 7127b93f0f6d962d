//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// mostThreads bounds the number of threads of a process, however many goroutines wait: threads that
// sleep in the kernel, threads of the arena, and threads of the Go runtime. Measurements have shown
// 11 to 37 threads, and a busy machine has more. With a thread for each goroutine there would be
// thousands.
const mostThreads = 200

type crowdParams struct {
	Arena  string
	N      int  // goroutines
	Locks  int  // 1 or N; the offsets of the locks are in the block "offsets"
	Cohort bool // the one lock is a CohortMutex
	Fair   bool // the one lock is a FairMutex
}

// crowdLock is the interface of a lock for which many goroutines wait.
type crowdLock interface {
	LockContext(ctx context.Context) error
	TryLock() bool
	Unlock()
	Waiters() int
	Object() arenakernel.Object
}

// crowdReport is what the process reports after each of its steps.
type crowdReport struct {
	Threads  int
	Waiting  int
	Canceled int
	Got      int
	Wrong    string
	Took     time.Duration
}

func init() {
	// crowd makes N goroutines wait, then cancels every second wait, and then waits until all other
	// goroutines have got their locks.
	proctest.Register("crowd", func(c *proctest.Child) {
		var p crowdParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: "crowd"})
		if err != nil {
			c.Fatal(err)
		}
		locks, err := openCrowd(a, p)
		if err != nil {
			c.Fatal(err)
		}
		patient, giveUp := context.WithCancel(context.Background())
		var got, canceled atomic.Int64
		var wrong atomic.Pointer[string]
		var wg sync.WaitGroup
		start := time.Now()
		for i := range p.N {
			m := locks[i%len(locks)]
			ctx := patient
			if i%2 == 1 {
				ctx = context.Background()
			}
			wg.Go(func() {
				switch err := m.LockContext(ctx); err {
				case nil:
					got.Add(1)
					m.Unlock()
				case context.Canceled:
					canceled.Add(1)
				default:
					s := err.Error()
					wrong.Store(&s)
				}
			})
		}
		waiting := func() (n int) {
			for _, m := range locks {
				n += m.Waiters()
			}
			return n
		}
		report := func() crowdReport {
			r := crowdReport{Threads: threads(), Waiting: waiting(), Canceled: int(canceled.Load()), Got: int(got.Load()), Took: time.Since(start)}
			if s := wrong.Load(); s != nil {
				r.Wrong = *s
			}
			start = time.Now()
			return r
		}
		wait := func(what string, done func() bool) {
			if err := waitUntil(3*timeout(), done); err != nil {
				c.Fatalf("%s: %v: %+v", what, err, report())
			}
			c.Say(report())
		}
		wait("wait", func() bool { return waiting() == p.N })
		c.Await()
		giveUp()
		half := int64(p.N / 2)
		wait("cancel", func() bool { return canceled.Load()+got.Load() == int64(p.N)-half && waiting() == int(half) })
		// The parent releases the locks now.
		wait("get", func() bool { return canceled.Load()+got.Load() == int64(p.N) })
		wg.Wait()
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
}

// openCrowd opens the lock "crowd", or opens the locks whose offsets are in the block "offsets".
func openCrowd(a *arena.Arena, p crowdParams) (locks []crowdLock, err error) {
	switch {
	case p.Cohort:
		c, err := prims.OpenCohortMutex(a, "crowd", &prims.CohortMutexOptions{Nodes: cohortNodes})
		return []crowdLock{c}, err
	case p.Fair:
		f, err := prims.OpenFairMutex(a, "crowd", nil)
		return []crowdLock{f}, err
	case p.Locks == 1:
		m, err := prims.OpenMutex(a, "crowd", nil)
		return []crowdLock{m}, err
	}
	b, err := a.Block("offsets", uint64(p.Locks)*8)
	if err != nil {
		return nil, err
	}
	for i := range p.Locks {
		m, err := prims.MutexAt(a, offsetAt(b, i))
		if err != nil {
			return nil, err
		}
		locks = append(locks, m)
	}
	return locks, nil
}

// threads returns the number of threads of this process.
func threads() int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "Threads:"); ok {
			t, _ := strconv.Atoi(strings.TrimSpace(n))
			return t
		}
	}
	panic("no Threads in /proc/self/status")
}

func crowdSize() int {
	if race.Enabled { // the race detector supports 8,128 goroutines
		return 5_000
	}
	return proctest.Rounds(5_000, 100_000)
}

func TestMutexCrowdOnOne(t *testing.T) { testCrowd(t, crowdParams{N: crowdSize(), Locks: 1}) }
func TestMutexCrowdOnMany(t *testing.T) {
	testCrowd(t, crowdParams{N: crowdSize(), Locks: crowdSize()})
}
func TestCohortMutexCrowd(t *testing.T) {
	testCrowd(t, crowdParams{N: crowdSize(), Locks: 1, Cohort: true})
}
func TestFairMutexCrowd(t *testing.T) {
	testCrowd(t, crowdParams{N: crowdSize(), Locks: 1, Fair: true})
}

// testCrowd makes a hundred thousand goroutines wait on few threads, and then cancels half of the waits. The
// cancellations must not affect the other waits, which must all get the lock.
func testCrowd(t *testing.T, p crowdParams) {
	n, locks := p.N, p.Locks
	a := newArena(t, &arena.Options{Size: 64<<20 + int64(locks)*2048, Label: "holder"})
	p.Arena = nameOf(a)
	var held []crowdLock
	if locks == 1 {
		var err error
		held, err = openCrowd(a, p)
		require.NoError(t, err)
	} else {
		b, err := a.Block("offsets", uint64(locks)*8)
		require.NoError(t, err)
		for i := range locks {
			m, err := prims.OpenMutex(a, "", nil)
			require.NoError(t, err)
			putOffset(b, i, m.Offset())
			held = append(held, m)
		}
	}
	for _, m := range held {
		require.True(t, m.TryLock())
	}
	before := a.Stats()
	x := proctest.Start(t, "crowd", proctest.Params(p), proctest.Limit(4*proctest.DefaultTimeout),
		proctest.Dump(func() string { return fmt.Sprintf("%s, and %d more", prims.Describe(a, held[0].Object()), locks-1) }))
	var r crowdReport
	x.Recv(t, &r)
	t.Logf("%d goroutines wait after %v: %d threads", r.Waiting, r.Took.Round(time.Millisecond), r.Threads)
	require.LessOrEqual(t, r.Threads, mostThreads)
	require.Equal(t, crowdReport{Threads: r.Threads, Waiting: n, Took: r.Took}, r)

	x.Send("cancel")
	x.Recv(t, &r)
	t.Logf("%d cancelled after %v: %d threads", r.Canceled, r.Took.Round(time.Millisecond), r.Threads)
	require.LessOrEqual(t, r.Threads, mostThreads)
	require.Equal(t, crowdReport{Threads: r.Threads, Waiting: n / 2, Canceled: n - n/2, Took: r.Took}, r)

	start := time.Now()
	for _, m := range held {
		m.Unlock()
	}
	x.Recv(t, &r)
	t.Logf("%d got it after %v (%v for the unlocking): %d threads", r.Got, r.Took.Round(time.Millisecond), time.Since(start).Round(time.Millisecond), r.Threads)
	require.LessOrEqual(t, r.Threads, mostThreads)
	require.Equal(t, n/2, r.Got, "%+v", r)
	require.Empty(t, r.Wrong)
	x.WaitExit(t)
	alone(t, a, 1)
	sound(t, a)
	// The nodes stay on the lists of their objects, where later waits can use them.
	s := a.Stats()
	require.Equal(t, before.Objects, s.Objects)
	queues := locks
	if p.Cohort {
		queues += cohortNodes
	}
	require.LessOrEqual(t, s.Nodes-s.PollerNodes, before.Nodes-before.PollerNodes+uint64(queues))
	require.LessOrEqual(t, s.PollerNodes, before.PollerNodes+2*uint64(queues), "each process may have waited for each lock")
	require.Zero(t, s.Claimed)
}

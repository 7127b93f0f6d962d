//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	// The process semaphore/crowd-waits has N goroutines wait for a permit. Then it cancels every second wait,
	// and waits until the others have got their permits.
	proctest.Register("semaphore/crowd-waits", func(c *proctest.Child) {
		var p crowdParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: "crowd"})
		if err != nil {
			c.Fatal(err)
		}
		sems := make([]*prims.Semaphore, p.Locks)
		for i := range sems {
			if sems[i], err = prims.AttachSemaphore(a, fmt.Sprint("s", i), nil); err != nil {
				c.Fatal(err)
			}
		}
		patient, giveUp := context.WithCancel(context.Background())
		var got, canceled atomic.Int64
		var wg sync.WaitGroup
		for i := range p.N {
			s, ctx := sems[i/2%len(sems)], patient
			if i%2 == 1 {
				ctx = context.Background()
			}
			wg.Go(func() {
				switch err := s.AcquireContext(ctx, 1); err {
				case nil:
					got.Add(1)
					s.Release(1)
				case context.Canceled:
					canceled.Add(1)
				default:
					c.Fatal(err)
				}
			})
		}
		waiting := func() (n int) {
			for _, s := range sems {
				n += s.Queued()
			}
			return n
		}
		start := time.Now()
		report := func() crowdReport {
			r := crowdReport{Threads: threads(), Waiting: waiting(), Canceled: int(canceled.Load()), Got: int(got.Load()), Took: time.Since(start)}
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
		// Measure the CPU time that the waits cost.
		before, since := cpuTime(), time.Now()
		<-after(time.Second)
		c.Say(float64(cpuTime()-before) / float64(time.Since(since)))
		c.Await()
		start = time.Now()
		giveUp()
		wait("cancel", func() bool { return int(canceled.Load()) == p.N/2 && waiting() == p.N/2 })
		wait("get", func() bool { return int(canceled.Load()+got.Load()) == p.N })
		wg.Wait()
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
}

func TestSemaphoreCrowdOnOne(t *testing.T)  { testSemaphoreCrowd(t, crowdSize(), 1) }
func TestSemaphoreCrowdOnMany(t *testing.T) { testSemaphoreCrowd(t, crowdSize(), crowdSize()/100) }

// testSemaphoreCrowd checks that n goroutines of one process can wait for permits on few threads. Then the process
// cancels half of the waits. All other waits get their permits.
func testSemaphoreCrowd(t *testing.T, n, objects int) {
	a := newArena(t, &arena.Options{Size: 64<<20 + int64(objects)*4096, Label: "holder"})
	var sems []*prims.Semaphore
	for i := range objects {
		s := newSemaphore(t, a, fmt.Sprint("s", i), 1, nil)
		require.True(t, s.TryAcquire(1))
		sems = append(sems, s)
	}
	p := proctest.Start(t, "semaphore/crowd-waits", proctest.Params(crowdParams{Arena: nameOf(a), N: n, Locks: objects}), proctest.Limit(4*proctest.DefaultTimeout),
		proctest.Dump(func() string { return prims.Describe(a, sems[0].Object()) }))
	var r crowdReport
	p.Recv(t, &r)
	t.Logf("%d goroutines wait after %v: %d threads", r.Waiting, r.Took.Round(time.Millisecond), r.Threads)
	require.LessOrEqual(t, r.Threads, mostThreads)
	require.Equal(t, n, r.Waiting)

	var busy float64
	p.Send("idle")
	p.Recv(t, &busy)
	t.Logf("they cost %.1f %% of a CPU", 100*busy)

	p.Send("cancel")
	p.Recv(t, &r)
	t.Logf("%d cancelled after %v: %d threads", r.Canceled, r.Took.Round(time.Millisecond), r.Threads)
	require.LessOrEqual(t, r.Threads, mostThreads)
	require.Equal(t, n/2, r.Canceled)
	require.Zero(t, r.Got)

	start := time.Now()
	for _, s := range sems {
		s.Release(1)
	}
	released := time.Since(start)
	p.Recv(t, &r)
	t.Logf("%d got it after %v (%v for the releases): %d threads", r.Got, r.Took.Round(time.Millisecond), released.Round(time.Microsecond), r.Threads)
	require.LessOrEqual(t, r.Threads, mostThreads)
	require.Equal(t, n-n/2, r.Got)
	p.WaitExit(t)
	alone(t, a, 1)
	sound(t, a)
	require.LessOrEqual(t, ownNodes(a), uint64(10))
	require.LessOrEqual(t, a.Stats().PollerNodes, uint64(2*objects), "each process may have a poller for each object")
}

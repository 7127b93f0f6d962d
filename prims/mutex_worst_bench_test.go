//go:build linux

package prims_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// worstLoad is the work of one process in a BenchmarkWorstWait.
type worstLoad struct {
	Arena, Kind          string
	Goroutines, Ps, Hogs int
	For                  time.Duration
}

// worstResult is the result of one process with a worstLoad.
type worstResult struct {
	Worst []time.Duration
	Holds int64
	Took  time.Duration
}

// BenchmarkWorstWait measures the longest waits of many goroutines, in one process or in two processes that share a
// lock. In one process it also measures sync.Mutex, for comparison. It takes the longest wait of each goroutine, and
// reports the median, the 99th percentile and the maximum of these waits. It also reports how often the lock was
// taken.
func BenchmarkWorstWait(b *testing.B) {
	for _, l := range []struct{ processes, goroutines, ps, hogs int }{{1, 64, 2, 0}, {1, 1000, 1, 1}, {2, 32, 2, 0}, {2, 500, 1, 1}} {
		for _, kind := range []string{"sync", "Mutex", "FairMutex"} {
			if kind == "sync" && l.processes > 1 {
				continue
			}
			b.Run(fmt.Sprintf("%d processes, %d on %d P, %d hogs/%s", l.processes, l.goroutines, l.ps, l.hogs, kind), func(b *testing.B) {
				var all worstResult
				for b.Loop() {
					r := worstOf(b, worstLoad{Kind: kind, Goroutines: l.goroutines, Ps: l.ps, Hogs: l.hogs, For: time.Second}, l.processes)
					all.Worst, all.Holds, all.Took = append(all.Worst, r.Worst...), all.Holds+r.Holds, all.Took+r.Took
				}
				slices.Sort(all.Worst)
				ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
				b.ReportMetric(ms(all.Worst[len(all.Worst)/2]), "p50-ms")
				b.ReportMetric(ms(all.Worst[len(all.Worst)*99/100]), "p99-ms")
				b.ReportMetric(ms(all.Worst[len(all.Worst)-1]), "max-ms")
				b.ReportMetric(float64(all.Holds)/all.Took.Seconds()/1e3, "kholds/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// worstOf makes processes do the work of load at the same time: this process, and another one if
// processes is 2.
func worstOf(b testing.TB, load worstLoad, processes int) worstResult {
	a := newArena(b, nil)
	load.Arena = nameOf(a)
	var peer *proctest.Proc
	if processes > 1 {
		peer = proctest.Start(b, "worst-wait", proctest.Params(load))
		peer.Await(b)
		peer.Send("go")
	}
	r, err := load.run(a)
	require.NoError(b, err)
	if peer != nil {
		var other worstResult
		peer.Recv(b, &other)
		r.Worst, r.Holds = append(r.Worst, other.Worst...), r.Holds+other.Holds
		peer.WaitExit(b)
	}
	return r
}

// TestWorstWaitsAreThoseOfBothProcesses checks that worstOf returns a wait for each goroutine of both processes.
func TestWorstWaitsAreThoseOfBothProcesses(t *testing.T) {
	for _, kind := range []string{"Mutex", "FairMutex"} {
		r := worstOf(t, worstLoad{Kind: kind, Goroutines: 3, Ps: 2, For: 200 * time.Millisecond}, 2)
		require.Len(t, r.Worst, 6)
		require.Positive(t, r.Holds)
	}
}

func init() {
	proctest.Register("worst-wait", func(c *proctest.Child) {
		var load worstLoad
		c.Params(&load)
		a, err := arena.Attach(load.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		c.Await()
		r, err := load.run(a)
		if err != nil {
			c.Fatal(err)
		}
		c.Say(r)
	})
}

// run does the work of one process.
func (load worstLoad) run(a *arena.Arena) (r worstResult, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(load.Ps))
	var l sync.Locker
	switch load.Kind {
	case "Mutex":
		l, err = prims.OpenMutex(a, "l", nil)
	case "FairMutex":
		l, err = prims.OpenFairMutex(a, "l", nil)
	default:
		l = new(sync.Mutex)
	}
	if err != nil {
		return r, err
	}
	r.Worst, r.Holds, r.Took = worstWaits(l, load.Goroutines, load.Hogs, load.For)
	return r, nil
}

// worstWaits makes goroutines lock and unlock l for a while, beside other goroutines, called hogs,
// that only compute. It returns the longest wait of each goroutine.
func worstWaits(l sync.Locker, goroutines, hogs int, d time.Duration) (worst []time.Duration, holds int64, took time.Duration) {
	var stop atomic.Bool
	var all atomic.Int64
	var wg, computing sync.WaitGroup
	worst = make([]time.Duration, goroutines)
	start := time.Now()
	for i := range worst {
		wg.Go(func() {
			n := int64(0)
			for !stop.Load() {
				t := time.Now()
				l.Lock()
				worst[i] = max(worst[i], time.Since(t))
				compute(20)
				l.Unlock()
				compute(20)
				n++
			}
			all.Add(n)
		})
	}
	for range hogs {
		computing.Go(func() {
			for !stop.Load() {
				compute(1000)
			}
		})
	}
	time.AfterFunc(d, func() {
		took = time.Since(start)
		stop.Store(true)
	})
	wg.Wait()
	computing.Wait()
	return worst, all.Load(), took
}

// compute keeps a CPU busy for about n times 2.5 ns.
func compute(n int) {
	x := uint64(n)
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	computed.Store(x)
}

var computed atomic.Uint64 // keeps the compiler from leaving the computation out

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

	"github.com/shmsync/shmsync/prims"
)

// BenchmarkWorstWait reports how long the waits of many goroutines of one process last
// at worst, beside sync.Mutex in the same run: the longest wait of each goroutine, of
// which it gives the median and the longest, and how often the lock was taken.
func BenchmarkWorstWait(b *testing.B) {
	for _, load := range []struct {
		goroutines, ps, hogs int
	}{{64, 2, 0}, {1000, 1, 1}} {
		for _, kind := range []string{"sync", "Mutex", "FairMutex"} {
			b.Run(fmt.Sprintf("%d on %d P, %d hogs/%s", load.goroutines, load.ps, load.hogs, kind), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(load.ps))
				var worst []time.Duration
				var holds int64
				var took time.Duration
				for b.Loop() {
					w, n, d := worstWaits(lockerOf(b, kind), load.goroutines, load.hogs, time.Second)
					worst, holds, took = append(worst, w...), holds+n, took+d
				}
				slices.Sort(worst)
				ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
				b.ReportMetric(ms(worst[len(worst)/2]), "p50-ms")
				b.ReportMetric(ms(worst[len(worst)*99/100]), "p99-ms")
				b.ReportMetric(ms(worst[len(worst)-1]), "max-ms")
				b.ReportMetric(float64(holds)/took.Seconds()/1e3, "kholds/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func lockerOf(b *testing.B, kind string) sync.Locker {
	switch kind {
	case "Mutex":
		return newMutex(b, newArena(b, nil), nil)
	case "FairMutex":
		return newFairMutex(b, &prims.FairMutexOptions{})
	}
	return new(sync.Mutex)
}

// worstWaits has goroutines take turns with a lock for a while, beside hogs that compute,
// and gives the longest wait of each.
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

// compute takes some 50 ns for each n of 20.
func compute(n int) {
	x := uint64(n)
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	computed.Store(x)
}

var computed atomic.Uint64 // keeps the compiler from leaving it out

//go:build linux

package prims_test

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// rwBench is the data that the processes of a benchmark share.
type rwBench struct {
	Go    atomic.Int64 // rounds in which both processes read
	Reads atomic.Int64 // reads of the other process
	Nanos atomic.Int64 // how long these reads took
}

// rwBatch read-locks and read-unlocks m n times, and returns how long that took.
func rwBatch(m *prims.RWMutex, n int) time.Duration {
	start := time.Now()
	for range n {
		m.RLock()
		m.RUnlock()
	}
	return time.Since(start)
}

func init() {
	proctest.Register("rwmutex/bench", func(c *proctest.Child) {
		var p struct {
			Arena string
			CPU   int
		}
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		m, err := prims.OpenRWMutex(a, "m", nil)
		if err != nil {
			c.Fatal(err)
		}
		b, err := arena.Value[rwBench](a, "bench")
		if err != nil {
			c.Fatal(err)
		}
		runtime.LockOSThread()
		if err := pin(p.CPU); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		for {
			switch b.Go.Load() {
			case 0:
				runtime.Gosched()
			case 1:
				d := rwBatch(m, 100_000)
				b.Nanos.Store(int64(d))
				b.Reads.Add(100_000)
			default:
				return
			}
		}
	})
}

// BenchmarkRWMutexReadTwoProcesses measures RLock and RUnlock without and with a process on another CPU that reads all
// the time. Batches of both kinds alternate. The benchmark reports the median of each kind, and the ratio of the two
// medians.
func BenchmarkRWMutexReadTwoProcesses(b *testing.B) {
	a := newArena(b, nil)
	m := ofRW(b, a)
	s, err := arena.Value[rwBench](a, "bench")
	if err != nil {
		b.Fatal(err)
	}
	if runtime.NumCPU() < 2 {
		b.Skip("needs two CPUs")
	}
	p := proctest.Start(b, "rwmutex/bench", proctest.Params(struct {
		Arena string
		CPU   int
	}{nameOf(a), 1}))
	p.Await(b)
	runtime.LockOSThread()
	const batch = 1_000_000
	var alone, beside, other []float64
	b.ResetTimer()
	for b.Loop() {
		alone = append(alone, float64(rwBatch(m, batch))/batch)
		reads := s.Reads.Load()
		s.Go.Store(1)
		for s.Reads.Load() == reads {
		}
		beside = append(beside, float64(rwBatch(m, batch))/batch)
		other = append(other, float64(s.Nanos.Load())/100_000)
		s.Go.Store(0)
		for reads := int64(-1); reads != s.Reads.Load(); {
			reads = s.Reads.Load()
			rwBatch(m, batch/10)
		}
	}
	s.Go.Store(2)
	p.WaitExit(b)
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	b.ReportMetric(median(alone), "ns/alone")
	b.ReportMetric(median(beside), "ns/beside")
	b.ReportMetric(median(other), "ns/other")
	b.ReportMetric(median(beside)/median(alone), "ratio")
	b.ReportMetric(0, "ns/op")
}

// TestRWMutexReadersApart: readers of two processes write to words in different pairs of cache lines. Each
// process makes progress while the other reads.
func TestRWMutexReadersApart(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	s, err := arena.Value[rwBench](a, "bench")
	require.NoError(t, err)
	p := proctest.Start(t, "rwmutex/bench", proctest.Params(struct {
		Arena string
		CPU   int
	}{nameOf(a), 0}), proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	pair := func(address uintptr) uintptr { return address / 128 } // the number of the pair of cache lines
	require.NotEqual(t, pair(m.LineOf(1)), pair(m.LineOf(2)))
	require.NotEqual(t, pair(m.LineOf(1)), pair(m.GateAt()))
	require.NotEqual(t, pair(m.LineOf(2)), pair(m.GateAt()))
	m.RLock()
	s.Go.Store(1)
	eventually(t, "the other reads beside us", m.String, func() bool { return s.Reads.Load() > 200_000 })
	m.RUnlock()
	s.Go.Store(2)
	p.WaitExit(t)
	nothingLeft(t, a, m)
}

//go:build linux

package prims_test

import (
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

// condCrowd is the shared data of the processes of a benchmark.
type condCrowd struct {
	Round, Waiting, Back int64 // guarded by the lock
	Hold                 int64 // how long a waiter that has come back holds the lock, ns
	End                  atomic.Uint32
}

type condCrowdParams struct {
	Arena string
	N     int
	All   int
}

func init() {
	proctest.Register("cond/crowd", func(c *proctest.Child) {
		var p condCrowdParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		wg, err := condCrowdWait(a, p)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		wg.Wait()
	})
}

func condCrowdWait(a *arena.Arena, p condCrowdParams) (*sync.WaitGroup, error) {
	m, err := prims.OpenMutex(a, "m", nil)
	if err != nil {
		return nil, err
	}
	c, err := prims.OpenCond(a, "c", m, nil)
	if err != nil {
		return nil, err
	}
	done, err := prims.OpenFutex(a, "done", nil)
	if err != nil {
		return nil, err
	}
	v, err := arena.Value[condCrowd](a, "crowd")
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	for range p.N {
		wg.Go(func() {
			m.Lock()
			defer m.Unlock()
			for v.End.Load() == 0 {
				round := v.Round
				v.Waiting++
				for v.Round == round {
					c.Wait()
				}
				v.Waiting--
				for end := time.Now().Add(time.Duration(v.Hold)); v.Hold > 0 && time.Now().Before(end); {
				}
				if v.Back++; v.Back == int64(p.All) {
					done.Post()
				}
				for v.Back < int64(p.All) { // the next round begins when all waiters are back
					token := done.Get() + 1
					m.Unlock()
					done.Wait(token)
					m.Lock()
				}
			}
		})
	}
	return &wg, nil
}

// BenchmarkCondBroadcast measures the time from a Broadcast until the last waiter has locked and
// unlocked the lock. A batch is how many of the waiters compete for the lock at a time.
func BenchmarkCondBroadcast(b *testing.B) {
	for _, waiters := range []int{8, 64} {
		for _, hold := range []time.Duration{0, 5 * time.Microsecond} {
			for _, batch := range []int{1, 2, 4, 8, 16, -1} {
				b.Run(fmt.Sprintf("waiters=%d/hold=%v/batch=%d", waiters, hold, batch), func(b *testing.B) {
					b.ReportMetric(condBroadcasts(b, waiters, hold, batch, b.Loop), "µs/broadcast")
				})
			}
		}
	}
}

// condBroadcasts makes goroutines of two processes wait. It calls Broadcast once in each round, and
// once more at the end. It returns the mean time of a round, in µs.
func condBroadcasts(b testing.TB, waiters int, hold time.Duration, batch int, more func() bool) float64 {
	a := newArena(b, nil)
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(b, err)
	c, err := prims.OpenCond(a, "c", m, &prims.CondOptions{Batch: batch})
	require.NoError(b, err)
	done, err := prims.OpenFutex(a, "done", nil)
	require.NoError(b, err)
	v, err := arena.Value[condCrowd](a, "crowd")
	require.NoError(b, err)
	v.Hold = int64(hold)
	p := condCrowdParams{nameOf(a), waiters / 2, waiters}
	wg, err := condCrowdWait(a, p)
	require.NoError(b, err)
	x := proctest.Start(b, "cond/crowd", proctest.Params(p))
	x.Await(b)
	var total time.Duration
	round := func(last bool) {
		eventually(b, "all wait", func() string { return words(a) }, func() bool {
			m.Lock()
			defer m.Unlock()
			return v.Waiting == int64(waiters)
		})
		m.Lock()
		v.Back = 0
		v.Round++
		if last {
			v.End.Store(1)
		}
		token := done.Get() + 1
		start := time.Now()
		c.Broadcast()
		m.Unlock()
		done.Wait(token)
		total += time.Since(start)
	}
	n := 0
	for more() {
		round(false)
		n++
	}
	mean := float64(total.Microseconds()) / float64(max(n, 1))
	round(true)
	wg.Wait()
	x.WaitExit(b)
	return mean
}

// TestCondBroadcastRounds: every Broadcast brings all waiters of two processes back, batch by
// batch.
func TestCondBroadcastRounds(t *testing.T) {
	left := 20
	condBroadcasts(t, 8, 0, 4, func() bool { left--; return left >= 0 })
	require.Equal(t, -1, left)
}

func BenchmarkCondSignal(b *testing.B) {
	a := newArena(b, nil)
	c := newCond(b, a, newMutex(b, a, nil))
	b.ReportAllocs()
	for b.Loop() {
		c.Signal()
	}
}

func BenchmarkFutureSetReset(b *testing.B) {
	f := newFuture(b, newArena(b, nil))
	b.ReportAllocs()
	for b.Loop() {
		f.Set(0)
		f.Reset()
	}
}

func BenchmarkFutureIsSet(b *testing.B) {
	f := newFuture(b, newArena(b, nil))
	f.Set(0)
	b.ReportAllocs()
	for b.Loop() {
		f.IsSet()
	}
}

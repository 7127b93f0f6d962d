//go:build linux

package main

import (
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// work is what the application did in one slice.
type work struct{ Ops, CPU int64 } // CPU is the CPU time of the whole process, ns

func init() {
	// The application is a child process. The parent sends it a slice, which is an amount of CPU time. The application
	// works until it has used this time, and reports its work.
	proctest.Register("shmctl/works", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		runtime.LockOSThread()
		turn, err := application(name)
		if err != nil {
			c.Fatal(err)
		}
		cpu := func() int64 {
			var t unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
				c.Fatal(err)
			}
			return t.Nano()
		}
		c.Ready()
		for {
			var slice int64 // ns of CPU time
			c.Recv(&slice)
			w, begin := work{}, cpu()
			for w.CPU < slice {
				for range 2000 {
					turn()
				}
				w.Ops, w.CPU = w.Ops+2000, cpu()-begin
			}
			c.Say(w)
		}
	})
}

// application opens the objects of an application, and returns a function for one step of its work. A step takes and
// releases a Mutex, an RWMutex for reading, a Semaphore and a key, changes a Synchronized, and passes an item through
// a Queue.
func application(name string) (turn func(), err error) {
	a, err := arena.Attach(name, &arena.Options{Label: "application"})
	if err != nil {
		return nil, err
	}
	m, err := prims.OpenMutex(a, "mutex", nil)
	if err != nil {
		return nil, err
	}
	rw, err := prims.OpenRWMutex(a, "rw", nil)
	if err != nil {
		return nil, err
	}
	s, err := prims.OpenSemaphore(a, "semaphore", 3, nil)
	if err != nil {
		return nil, err
	}
	x, err := prims.OpenMultiLock(a, "multi", nil)
	if err != nil {
		return nil, err
	}
	v, err := prims.OpenSynchronized(a, "synchronized", [2]int64{}, nil)
	if err != nil {
		return nil, err
	}
	q, err := prims.OpenQueue[uint64](a, "queue", 64, nil)
	if err != nil {
		return nil, err
	}
	count := func(n *[2]int64) error {
		n[0]++
		n[1]++
		return nil
	}
	return func() {
		m.Lock()
		//lint:ignore SA2001 the benchmark is of the pair
		m.Unlock()
		rw.RLock()
		//lint:ignore SA2001 the same
		rw.RUnlock()
		s.Acquire(1)
		s.Release(1)
		x.Lock(7).Unlock()
		v.Update(count)
		q.Put(1)
		q.Get()
	}, nil
}

// looks returns commands that only examine the arena, and that a person or a metrics scraper runs repeatedly.
func looks(name string) [][]string {
	return [][]string{{"ps", name}, {"locks", name}, {"waits", name}, {"show", name, "mutex"}, {"metrics", name}, {"top", "-n", "1", name}}
}

// slowdown measures how much the commands slow the application down, in percent of its CPU time per step. It measures
// pairs of slices, in random order: commands run during one slice of a pair, and none during the other. It returns the
// median over the pairs, and a 95 % interval of the median by the bootstrap.
func slowdown(b testing.TB, name string, slice time.Duration, pairs int, look func(stop *atomic.Bool)) (median, low, high float64) {
	app := proctest.Start(b, "shmctl/works", proctest.Params(name))
	app.Await(b)
	measure := func(looking bool) float64 {
		var stop atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if looking {
				look(&stop)
			}
		}()
		app.Send(int64(slice))
		var w work
		app.Recv(b, &w)
		stop.Store(true)
		<-ended
		return float64(w.CPU) / float64(w.Ops)
	}
	measure(true)
	measure(false)
	var costs []float64
	for range pairs {
		var with, without float64
		if rand.IntN(2) == 0 {
			with, without = measure(true), measure(false)
		} else {
			without, with = measure(false), measure(true)
		}
		costs = append(costs, 100*(with/without-1))
	}
	app.Kill(b)
	low, high = interval(costs)
	return medianOf(costs), low, high
}

func medianOf(all []float64) float64 {
	s := slices.Sorted(slices.Values(all))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// interval returns a 95 % interval of the median, by the bootstrap.
func interval(all []float64) (low, high float64) {
	medians := make([]float64, 4000)
	again := make([]float64, len(all))
	for i := range medians {
		for k := range again {
			again[k] = all[rand.IntN(len(all))]
		}
		medians[i] = medianOf(again)
	}
	slices.Sort(medians)
	return medians[len(medians)/40], medians[len(medians)-1-len(medians)/40]
}

// BenchmarkLooking measures what the commands that examine an arena cost an application that only uses locks and a
// Queue. The arena also has a holder with two waiters, five idle participants, and a hundred objects:
//
//	go test -run '^$' -bench Looking -benchtime 300x ./cmd/shmctl
//
// At rate=1/s, one command runs in each slice of 200 ms of CPU time, that is, five commands in a second. The benchmark
// divides the measured cost by five, so that the metrics are those of one command per second, as a person or a scraper
// runs it. At rate=all, commands run without a pause. The number of iterations is the number of pairs. The metrics are
// in percent of the CPU time of the application: the median, and the ends of its 95 % interval. The benchmark does not
// use elapsed time, because other work on the machine takes the CPU away from the application.
func BenchmarkLooking(b *testing.B) {
	for _, rate := range []struct {
		name  string
		slice time.Duration
		part  float64 // the metrics are the measured cost times part
		look  func(commands [][]string) func(stop *atomic.Bool)
	}{
		{"rate=1/s", 200 * time.Millisecond, 0.2, func(commands [][]string) func(*atomic.Bool) {
			next := 0
			return func(*atomic.Bool) {
				realMain(commands[next%len(commands)], io.Discard, io.Discard)
				next++
			}
		}},
		{"rate=all", 50 * time.Millisecond, 1, func(commands [][]string) func(*atomic.Bool) {
			next := 0
			return func(stop *atomic.Bool) {
				for ; !stop.Load(); next++ {
					realMain(commands[next%len(commands)], io.Discard, io.Discard)
				}
			}
		}},
	} {
		b.Run(rate.name, func(b *testing.B) {
			name := testArena(b)
			crowd(b, name)
			median, low, high := slowdown(b, name, rate.slice, b.N, rate.look(looks(name)))
			b.ReportMetric(median*rate.part, "median-%")
			b.ReportMetric(low*rate.part, "low-%")
			b.ReportMetric(high*rate.part, "high-%")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// crowd puts idle participants, a hundred locks and two waiters into an arena.
func crowd(b testing.TB, name string) {
	a, err := arena.Attach(name, &arena.Options{Label: "crowd"})
	require.NoError(b, err)
	b.Cleanup(func() { a.Close() })
	for range 100 {
		m, err := prims.OpenMutex(a, "", nil)
		require.NoError(b, err)
		b.Cleanup(func() { m.Close() })
	}
	holder := newAgent(b, name, "holder")
	holder.does("lock mutex", "held")
	for range 2 {
		newAgent(b, name, "waiter").begins("lock mutex", "held")
	}
	for range 5 {
		newAgent(b, name, "idle").does("rlock rw", "idle")
	}
}

// TestLookingIsMeasured checks that the measurement of BenchmarkLooking works. It does not check the figures, which
// depend on the machine.
func TestLookingIsMeasured(t *testing.T) {
	name := testArena(t)
	crowd(t, name)
	looked := 0
	median, low, high := slowdown(t, name, time.Millisecond, 3, func(*atomic.Bool) {
		for _, args := range looks(name) {
			code, out, errs := shmctl(args...)
			require.NotEqual(t, exitError, code, errs)
			require.NotEmpty(t, out)
		}
		looked++
	})
	require.Equal(t, 4, looked, "one slice of each pair, and one before")
	require.LessOrEqual(t, low, median)
	require.LessOrEqual(t, median, high)
	require.EqualValues(t, 3, medianOf([]float64{5, 1, 3}))
}

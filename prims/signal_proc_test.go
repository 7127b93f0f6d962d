//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// signalParty opens a site, which is a waker with its queues, in this process, and starts partners that use it
// in other processes.
func signalParty(t *testing.T, workers int, partners ...int) (*signalSite, []*proctest.Proc) {
	t.Helper()
	a := newArena(t, &arena.Options{Label: "test"})
	s, err := openSignalSite(a, func(err error) { panic(fmt.Sprintf("%v\n%s", err, words(a))) })
	require.NoError(t, err)
	var procs []*proctest.Proc
	for _, n := range partners {
		p := proctest.Start(t, "signal/partner", proctest.Params(crashParams{Arena: nameOf(a), Round: n}),
			proctest.Dump(func() string { return words(a) }), proctest.Limit(2*proctest.DefaultTimeout))
		p.Await(t)
		procs = append(procs, p)
	}
	s.work(workers)
	t.Cleanup(func() {
		if t.Failed() {
			s.fail = func(error) {}
			s.stop()
		}
	})
	return s, procs
}

// drain stops all work. Then it checks that everything was executed, and that no bit, permit, sleeper or worker
// is left.
func drain(t *testing.T, s *signalSite, procs []*proctest.Proc) {
	t.Helper()
	for _, p := range procs {
		p.Send(-1)
		p.WaitExit(t)
	}
	require.NoError(t, s.stop(), "%s", words(s.a))
	alone(t, s.a, 1)
	// A worker that stopped may have left a queue scheduled. The summary has a bit for the queue, so another
	// process need not schedule it again.
	for {
		g, ok := s.w.Next(0)
		if !ok {
			break
		}
		s.execute(&g)
	}
	for k := range signalQueues {
		q := &s.board.Queue[k]
		require.Equal(t, q.Pushed.Load(), q.Done.Load(), "queue %d\n%s", queueAt(k), words(s.a))
	}
	idle(t, s.a, s.w)
	require.Zero(t, s.w.WorkerCount())
	require.NoError(t, prims.CheckSignals(s.w))
	sound(t, s.a)
}

// TestSignalStress: producers and workers of three processes share a waker. One process has more workers than may sleep
// in the kernel, so some of them park. No item is lost, no queue has two executors at a time, and nothing is left over.
func TestSignalStress(t *testing.T) {
	s, procs := signalParty(t, 3, 3, 18)
	d := proctest.Rounds(proctest.Scale(2*time.Second)/10, proctest.Scale(2*time.Second))
	var wg sync.WaitGroup
	for end := time.Now().Add(d); time.Now().Before(end); {
		// Bursts of work alternate with times in which all workers sleep.
		for range 3 {
			wg.Go(func() {
				for range 200 {
					s.push(rand.IntN(signalQueues))
				}
			})
		}
		wg.Wait()
		require.NoError(t, s.goesOn(), "%s", words(s.a))
	}
	for _, p := range procs {
		p.Send(1)
		p.Await(t)
	}
	drain(t, s, procs)
}

// TestSignalNoLostWake: whichever process pushes the last item of a burst, a worker finds it. No worker stays
// asleep while there is an item. The pushes stop after each burst, so no later push makes up for a lost wake.
func TestSignalNoLostWake(t *testing.T) {
	a, w, x := twoSides(t)
	rounds := proctest.Rounds(1000, 20_000)
	id := x.start(order{Op: "walk", Object: "w", N: rounds})
	for k := range rounds {
		g := w.Gate(k % 4096)
		g.Schedule()
		limit := shortly()
		for g.State().Epoch == uint32(k/4096) || g.State().Executing {
			if limit() {
				t.Fatalf("queue %d of round %d\n%s", k%4096, k, words(a))
			}
			if k%4 == 0 {
				runtime.Gosched() // lets the worker fall asleep; without it, most wakes come just before the sleep
			}
		}
	}
	require.EqualValues(t, rounds, x.wait(t, id).N)
	idle(t, a, w)
}

// shortly returns a function that reports whether the timeout has passed. The function is cheap enough for a
// tight loop.
func shortly() func() bool {
	n, end := 0, time.Now().Add(timeout())
	return func() bool {
		n++
		return n%1000 == 0 && time.Now().After(end)
	}
}

// TestSignalRandomKills: processes are killed at random moments while they work. The others go on.
func TestSignalRandomKills(t *testing.T) {
	s, procs := signalParty(t, 2, 16)
	rounds := proctest.Rounds(5, 12)
	for range rounds {
		v := proctest.Start(t, "signal/mayfly", proctest.Params(crashParams{Arena: nameOf(s.a)}))
		v.Await(t)
		<-after(time.Duration(rand.IntN(15_000)) * time.Microsecond)
		v.Kill(t)
		alone(t, s.a, 2)
		require.NoError(t, s.goesOn(), "%s", words(s.a))
	}
	procs[0].Send(1)
	procs[0].Await(t)
	drain(t, s, procs)
}

// TestSignalStoppedExecutor: an executor is stopped. No other process executes its queue, however long the stop
// takes. All other queues are executed.
func TestSignalStoppedExecutor(t *testing.T) {
	s, procs := signalParty(t, 2, 3)
	x := signalActor(t, s.a, "stopped")
	held := 200 // not a queue of signalBoard
	num(t, x, "schedule", held)
	stop := held
	if !num(t, x, "begin", held).OK {
		// Another worker may have begun the execution first. Then it has finished by now, or finishes soon.
		eventually(t, "it is ours", func() string { return words(s.a) }, func() bool { return num(t, x, "inline", held).OK })
	}
	x.proc.Stop(t)
	g := s.w.Gate(stop)
	require.False(t, g.Schedule(), "the queue is left to its executor")
	st := g.State()
	require.True(t, st.Executing && st.Scheduled)
	require.Equal(t, "stopped", st.Executor.Label)
	runs := func() (n uint64) {
		for k := range signalQueues {
			n += s.board.Queue[k].Runs.Load()
		}
		return n
	}
	from := runs()
	eventually(t, "others go on", func() string { return words(s.a) }, func() bool { return runs() > from+2000 })
	require.Equal(t, st, g.State(), "no other process has executed the queue")
	require.NoError(t, s.goesOn())
	x.proc.Cont(t)
	require.True(t, num(t, x, "finish", held).OK)
	eventually(t, "it is executed", func() string { return words(s.a) }, func() bool {
		now := g.State()
		return now.Epoch > st.Epoch && !now.Executing && !now.Scheduled
	})
	x.proc.Kill(t)
	alone(t, s.a, 2)
	drain(t, s, procs)
}

// TestSignalLook checks that the periodic check of a sleeper finds a queue whose producer was stopped in the middle of
// Schedule. The producer has not set the bit of the queue yet, or has set it, but not the summary bit of the signal.
func TestSignalLook(t *testing.T) {
	a, w, x := twoSides(t)
	g := w.Gate(300)
	w.SetGate(300, 1<<29) // scheduled without a bit: its producer is stopped
	id := x.start(order{Op: "acquire", Object: "w"})
	x.wait(t, id)
	n := num(t, x, "next", 0)
	require.True(t, n.OK)
	require.EqualValues(t, 300, n.N)
	num(t, x, "finish", 300)
	require.Contains(t, g.String(), "idle")
	for asleep := false; !asleep; {
		idle(t, a, w)
		id = x.start(order{Op: "acquire", Object: "w"})
		// A periodic check that was already running may still have issued a permit.
		eventually(t, "it sleeps or comes back", func() string { return words(a) }, func() bool {
			asleep = num(t, x, "sleepers", 0).N == 1
			_, back := x.said[id]
			return asleep || back
		})
		if !asleep {
			x.wait(t, id)
		}
	}
	w.SetGate(300, 1<<29)
	w.Signal(300 / 64).Set(300 % 64) // but do not set the bit in the summary
	x.wait(t, id)
	require.True(t, num(t, x, "next", 0).OK)
	num(t, x, "finish", 300)
	idle(t, a, w)
}

// acquired returns how many of the calls with the given IDs have returned.
func acquired(t *testing.T, x *actor, ids []int) (n int) {
	t.Helper()
	num(t, x, "sleepers", 0) // also receives the answers of the other calls
	for _, id := range ids {
		if _, ok := x.said[id]; ok {
			n++
		}
	}
	return n
}

// TestSignalDeath: after the death of a process, its executions, reservations, registrations and sleepers are
// undone.
func TestSignalDeath(t *testing.T) {
	a, w, x := twoSides(t)
	y := signalActor(t, a, "successor")
	for _, q := range []int{1, 2, 70} {
		num(t, x, "schedule", q)
	}
	for range 2 {
		require.True(t, num(t, x, "next", 0).OK)
	}
	require.True(t, num(t, x, "inline", 4000).OK)
	require.False(t, w.Gate(4000).Schedule())
	for range 5 {
		require.True(t, num(t, x, "reserve", 0).OK)
	}
	q, ok := w.ReserveTask()
	require.True(t, ok)
	num(t, x, "worker", 0)
	num(t, y, "worker", 0)
	num(t, x, "sleeper", 0)
	require.True(t, num(t, x, "take", 70).OK, "the process takes queue 70, and does not begin its execution")
	for w.TryAcquire() {
	}
	w.TryUnmarkIfEmpty(0)
	w.TryUnmarkIfEmpty(1)
	var ids, dying []int
	for range 20 { // so many that not all of them may sleep in the kernel
		dying = append(dying, x.start(order{Op: "acquire", Object: "w"}))
		ids = append(ids, y.start(order{Op: "acquire", Object: "w"}))
	}
	eventually(t, "they sleep", func() string { return words(a) }, func() bool {
		// On a busy host, a periodic check may come first. It issues permits for queue 70, which is scheduled, and
		// some of the calls return.
		back := acquired(t, x, dying) + acquired(t, y, ids)
		return w.Sleepers()+back == 41
	})
	x.proc.Kill(t)
	alone(t, a, 2)
	eventually(t, "sleepers are told", func() string { return words(a) }, func() bool { return w.Sleepers() < 20 })
	require.Equal(t, 1, w.WorkerCount())
	require.Equal(t, 1, w.Tasks())
	w.ReleaseTask(q)
	for _, q := range []int{1, 2, 70, 4000} {
		st := w.Gate(q).State()
		require.True(t, st.Scheduled && !st.Executing, "queue %d: %s", q, words(a))
		require.True(t, w.Signal(q/64).IsSet(q%64))
	}
	require.EqualValues(t, uint64(1)<<62|3, w.SnapshotSummary())
	for range 4 {
		n := num(t, y, "next", 0)
		require.True(t, n.OK)
		num(t, y, "finish", int(n.N))
	}
	w.Release(20)
	for _, id := range ids {
		y.wait(t, id)
	}
	idle(t, a, w)
}

// TestSignalDeadSleepers: every wake of a Release reaches a living sleeper, even if dead sleepers and dead
// pollers are before it in the kernel's queue.
func TestSignalDeadSleepers(t *testing.T) {
	a, w, x := twoSides(t)
	y := signalActor(t, a, "alive")
	for range 16 {
		x.start(order{Op: "acquire", Object: "w"})
	}
	eventually(t, "they sleep", func() string { return words(a) }, func() bool { return w.Sleepers() == 16 })
	var ids []int
	for range 16 {
		ids = append(ids, y.start(order{Op: "acquire", Object: "w"}))
	}
	eventually(t, "all sleep", func() string { return words(a) }, func() bool { return w.Sleepers() == 32 })
	x.proc.Signal(t, syscall.SIGKILL)
	w.Release(16) // at once, while the dying processes still count as sleepers and may be woken
	x.proc.Wait(t)
	alone(t, a, 2)
	// The permits that dead processes have taken are lost. This is allowed, because permits are only hints. But
	// the living processes get all other permits.
	eventually(t, "no permit is left beside a sleeper", func() string { return words(a) }, func() bool {
		return w.Permits() == 0 || w.Sleepers() == 0
	})
	for n := w.Sleepers(); n > 0; n = w.Sleepers() {
		w.Release(1)
		eventually(t, "one more gets up", func() string { return words(a) }, func() bool { return w.Sleepers() < n })
	}
	for _, id := range ids {
		require.Empty(t, y.wait(t, id).Panic)
	}
	idle(t, a, w)
}

func TestSignalNoAllocs(t *testing.T) {
	w := newWaker(t, newArena(t, nil), nil)
	ctx := context.Background()
	for what, f := range map[string]func(){
		"schedule": func() {
			w.Gate(7).Schedule()
			g := w.Gate(7)
			g.Begin()
			g.Schedule()
			g.Finish()
			g.Begin()
			g.Finish()
		},
		"next":    func() { w.Gate(99).Schedule(); g, _ := w.Next(99); g.FinishAndSchedule(); g, _ = w.Next(0); g.Finish() },
		"inline":  func() { g := w.Gate(3); g.TryBeginInline(); g.Finish() },
		"permits": func() { w.Release(3); w.TryAcquire(); w.Acquire(); w.AcquireContext(ctx) },
		"index": func() {
			w.MarkActive(3)
			w.TryUnmarkIfEmpty(3)
			w.Signal(3).Set(1)
			w.Signal(3).Acquire(1)
			w.TryAcquire()
		},
		"tasks": func() { q, _ := w.ReserveTask(); w.ReleaseTask(q) },
	} {
		require.Zero(t, testing.AllocsPerRun(200, f), what)
		for w.TryAcquire() {
		}
	}
}

func BenchmarkGate(b *testing.B) {
	w := newWaker(b, newArena(b, nil), nil)
	b.Run("schedule hot", func(b *testing.B) {
		w.Gate(1).Schedule()
		for b.Loop() {
			w.Gate(1).Schedule()
		}
		g := w.Gate(1)
		g.Begin()
		g.Finish()
	})
	b.Run("begin finish", func(b *testing.B) {
		for b.Loop() {
			g := w.Gate(2)
			g.TryBeginInline()
			g.Finish()
		}
	})
	b.Run("schedule next finish", func(b *testing.B) {
		for b.Loop() {
			w.Gate(3).Schedule()
			g, _ := w.Next(3)
			g.Finish()
			w.TryAcquire()
		}
	})
	b.Run("release acquire", func(b *testing.B) {
		for b.Loop() {
			w.Release(1)
			w.TryAcquire()
		}
	})
	for _, leaves := range []int{4, 16, 64} {
		b.Run(fmt.Sprint("sync partition ", leaves), func(b *testing.B) {
			for b.Loop() {
				w.SyncPartitionSummary(0, leaves, nil)
			}
		})
	}
	b.Run("reap of a reap", func(b *testing.B) {
		for b.Loop() {
			w.Repair(100 | 1<<11)
		}
	})
}

// TestSignalEdges: an execution of a queue happens before the next execution of the queue. What a producer does before
// it schedules a queue happens before the execution of the queue. The test uses plain variables, so the race detector
// reports a violation.
func TestSignalEdges(t *testing.T) {
	w := newWaker(t, newArena(t, nil), nil)
	count, handed, got := 0, 0, 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for k := 0; k < 2000; {
				g := w.Gate(9)
				if g.Schedule(); g.Begin() {
					count++
					k++
					g.Finish()
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	require.Equal(t, 8000, count)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for got < 1000 {
			if g, ok := w.Next(0); ok {
				if g.Queue() == 100 {
					got = handed
				}
				g.Finish()
			} else {
				w.Acquire()
			}
		}
	}()
	for handed < 1000 {
		// This goroutine may write to handed only while the other goroutine does not execute queue 100.
		if g := w.Gate(100); g.TryBeginInline() {
			handed++
			g.FinishAndSchedule()
		}
		runtime.Gosched()
	}
	<-over
	require.Equal(t, handed, got)
}

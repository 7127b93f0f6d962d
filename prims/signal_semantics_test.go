//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// twoSides returns a new waker, and an actor in another process that has the waker open, too.
func twoSides(t *testing.T) (*arena.Arena, *prims.SignalWaker, *actor) {
	t.Helper()
	a := newArena(t, &arena.Options{Label: "test"})
	w := newWaker(t, a, nil)
	return a, w, signalActor(t, a, "other")
}

func TestSignalWakerCreation(t *testing.T) {
	a, w, x := twoSides(t)
	require.Equal(t, 64, w.Signals())
	require.Equal(t, 4096, w.Queues())
	h := w.Health()
	require.Zero(t, h.Summary+h.Permits+h.Partition)
	require.Zero(t, h.Signals+h.Scheduled+h.Executing+h.Reserved+h.Sleepers+h.Workers)
	require.False(t, h.HasWork || h.Yield || h.Tasks)
	require.False(t, x.op(t, "try", "w").OK)
	require.False(t, num(t, x, "next", 0).OK)
	require.Equal(t, 64, w.SummarySelect(5))

	small, err := prims.OpenSignalWaker(a, "small", &prims.SignalWakerOptions{Signals: 3, Count: true, Spin: -1})
	require.NoError(t, err)
	require.Equal(t, 192, small.Queues())
	require.Negative(t, small.Spin())
	at, err := prims.SignalWakerAt(a, small.Offset())
	require.NoError(t, err)
	require.Equal(t, small.Offset(), at.Offset())
	require.NoError(t, at.Close())
	_, err = prims.OpenSignalWaker(a, "small", &prims.SignalWakerOptions{Signals: 4})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "3 signals, asked for 4")
	_, err = prims.OpenMutex(a, "w", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	again, err := prims.OpenSignalWaker(a, "small", nil)
	require.NoError(t, err)
	require.Equal(t, 3, again.Signals(), "an opening without a number of signals accepts any number")
	require.NoError(t, again.Close())
	m, err := prims.OpenMutex(a, "", nil)
	require.NoError(t, err)
	_, err = prims.SignalWakerAt(a, m.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.NoError(t, small.Close())
	require.ErrorIs(t, small.Close(), shmsync.ErrClosed)
	for what, f := range map[string]func(){
		"queue 4096 of 4096": func() { w.Gate(4096) }, "queue -1": func() { w.Next(-1) }, "signal 64": func() { w.Signal(64) },
		"bit 64": func() { w.Signal(0).Set(64) }, "Release of -1": func() { w.Release(-1) },
		"leaf 64": func() { w.ClearPartitionLeaf(64) }, "partition 3..2": func() { w.SyncPartitionSummary(3, 2, nil) },
		"UnregisterWorker without": w.UnregisterWorker, "UnregisterSleeper without": w.UnregisterSleeper,
		"ReleaseTask of queue 7": func() { w.ReleaseTask(7) }, "Finish of queue 9": func() { w.Gate(9).Finish() },
		"65 signals": func() { prims.OpenSignalWaker(a, "", &prims.SignalWakerOptions{Signals: 65}) },
	} {
		func() {
			defer func() { require.Contains(t, fmt.Sprint(recover()), what) }()
			f()
		}()
	}
	require.NoError(t, prims.CheckSignals(w))
}

// TestSignalBits checks the results of two processes that change the bits of the same signal.
func TestSignalBits(t *testing.T) {
	_, w, x := twoSides(t)
	s := w.Signal(3)
	require.Equal(t, 3, s.Index())
	empty, set := s.Set(5)
	require.True(t, empty && set)
	empty, set = s.Set(5)
	require.False(t, empty || set)
	a := num(t, x, "set", 3*64+63)
	require.True(t, a.OK)
	require.Equal(t, "false", a.Text)
	require.Equal(t, 2, s.Size())
	require.EqualValues(t, uint64(1)<<63|1<<5, s.Load())
	require.True(t, s.IsSet(63) && s.IsSet(5) && !s.IsSet(6) && !s.IsEmpty())
	require.Equal(t, 5, s.Nearest(34), "of two bits that are equally near, the lower one")
	require.Equal(t, 63, s.Nearest(35))
	mask, before, ok := s.TryAcquire(5)
	require.True(t, ok)
	require.EqualValues(t, 1<<5, mask)
	require.EqualValues(t, uint64(1)<<63|1<<5, before)
	require.False(t, num(t, x, "take", 3*64+5).OK, "exactly one gets it")
	require.True(t, num(t, x, "take", 3*64+63).OK)
	require.True(t, s.IsEmpty())
	empty, added := s.SetMask(6)
	require.True(t, empty)
	require.EqualValues(t, 6, added)
	_, added = s.SetMask(7)
	require.EqualValues(t, 1, added)
	require.Equal(t, 3*64+9, s.Queue(9))
	require.Zero(t, w.SnapshotSummary(), "bits alone mark nothing")
}

// TestSignalSummary: a permit is issued each time a bit of the summary goes from 0 to 1.
func TestSignalSummary(t *testing.T) {
	_, w, x := twoSides(t)
	require.True(t, w.MarkActive(63))
	require.False(t, num(t, x, "mark", 63).OK)
	require.EqualValues(t, 1, w.Permits())
	require.EqualValues(t, uint64(1)<<63, num(t, x, "summary", 0).N)
	// If two masks overlap, only the bits that are new issue permits.
	require.EqualValues(t, 0b1110, w.MarkActiveMask(0b1110))
	require.EqualValues(t, 4, w.Permits())
	require.EqualValues(t, 0b10001, x.must(t, order{Op: "mark-mask", Object: "w", Token: 0b11111}).N)
	require.EqualValues(t, 6, w.Permits())
	require.Zero(t, w.MarkActiveMask(0))
	require.EqualValues(t, 6, w.Permits())
	require.Equal(t, 4, w.SummarySelect(6))
	require.EqualValues(t, 63, num(t, x, "select", 50).N)
	require.EqualValues(t, 0, num(t, x, "select", 0).N)
	// Unmarking takes back no permit. TryUnmarkIfEmpty unmarks a signal only if it is empty.
	w.Signal(2).Set(7)
	require.False(t, num(t, x, "unmark-empty", 2).OK)
	require.True(t, w.TryUnmarkIfEmpty(3))
	require.False(t, w.TryUnmarkIfEmpty(3))
	require.True(t, num(t, x, "unmark", 2).OK)
	require.False(t, w.TryUnmark(2))
	require.EqualValues(t, uint64(1)<<63|0b10011, w.SnapshotSummary())
	require.EqualValues(t, 6, w.Permits())
	// Next clears a bit of the summary if its signal has no scheduled queue.
	require.True(t, w.MarkActive(2))
	require.False(t, num(t, x, "next", 100).OK)
	require.Zero(t, w.SnapshotSummary())
	require.True(t, w.Signal(2).IsEmpty())
	require.EqualValues(t, 7, w.Permits())

	small, err := prims.OpenSignalWaker(newArena(t, nil), "", &prims.SignalWakerOptions{Signals: 2})
	require.NoError(t, err)
	require.Panics(t, func() { small.MarkActiveMask(4) })
	require.EqualValues(t, 3, small.MarkActiveMask(3))
}

func TestSignalPermits(t *testing.T) {
	a, w, x := twoSides(t)
	w.Release(0)
	require.Zero(t, w.Permits())
	w.Release(2)
	require.EqualValues(t, 2, num(t, x, "permits", 0).N, "they accumulate when nobody sleeps")
	require.True(t, x.op(t, "try", "w").OK)
	require.True(t, w.TryAcquire())
	require.False(t, w.TryAcquire())
	num(t, x, "release", 1002)
	require.EqualValues(t, 1002, w.Permits())
	for range 1002 {
		w.Acquire()
	}
	require.False(t, x.op(t, "try", "w").OK)

	// Of three sleepers, two are released and one remains.
	var ids []int
	for range 3 {
		ids = append(ids, x.start(order{Op: "acquire", Object: "w"}))
	}
	asleep := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d sleep", n), func() string { return words(a) }, func() bool { return w.Sleepers() == n })
	}
	asleep(3)
	w.Release(2)
	asleep(1)
	require.Zero(t, w.Permits())
	w.Release(1)
	asleep(0)
	for _, id := range ids {
		x.wait(t, id)
	}
	require.Zero(t, w.Permits())
	idle(t, a, w)
}

// TestSignalAcquireContext checks that no permit is lost or created if the context of an AcquireContext ends before the
// call, during the call, or at the time of a Release.
func TestSignalAcquireContext(t *testing.T) {
	a, w, x := twoSides(t)
	done, cancel := context.WithCancel(context.Background())
	cancel()
	require.Equal(t, context.Canceled, w.AcquireContext(done))
	w.Release(1)
	require.NoError(t, w.AcquireContext(done), "a permit beats a context that has ended")
	late := x.do(t, order{Op: "acquire-ctx", Object: "w", Limit: time.Nanosecond})
	require.Contains(t, late.Is, "ctx-deadline")
	require.Zero(t, num(t, x, "acquire-lapsed", 200).N)
	require.Zero(t, w.Sleepers(), "balanced after the end of contexts")

	rounds := proctest.Rounds(50, 300)
	for range rounds {
		first := x.start(order{Op: "acquire-ctx", Object: "w"})
		second := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { second <- w.AcquireContext(ctx) }()
		eventually(t, "both sleep", func() string { return words(a) }, func() bool { return w.Sleepers() == 2 })
		// A release and the end of one waiter's context come at the same time. If this waiter does not get the
		// permit, the other waiter does.
		go cancel()
		w.Release(1)
		if err := <-second; err == nil {
			w.Release(1)
		}
		require.Empty(t, x.wait(t, first).Err)
		require.Zero(t, w.Permits())
	}
	require.Zero(t, w.Sleepers())
}

func TestSignalStatus(t *testing.T) {
	_, w, x := twoSides(t)
	status := func(want string) {
		t.Helper()
		require.Equal(t, want, num(t, x, "status", 0).Text)
	}
	status("false false")
	require.True(t, w.MarkYield())
	require.False(t, x.op(t, "yield", "w").OK)
	require.EqualValues(t, 1, w.Permits())
	status("true false")
	require.True(t, x.op(t, "tasks", "w").OK)
	status("true true")
	require.EqualValues(t, 2, w.Permits())
	// The lowest bits of the summary are not the status bits.
	w.MarkActiveMask(3)
	require.True(t, x.op(t, "unyield", "w").OK)
	require.True(t, w.TryUnmarkTasks())
	require.False(t, w.TryUnmarkTasks())
	require.False(t, w.TryUnmarkYield())
	require.EqualValues(t, 3, w.SnapshotSummary())
	status("false false")
	require.EqualValues(t, 4, w.Permits(), "unmarking takes no permit back")
	// While the partition summary has a bit, TryUnmarkTasks sets the tasks bit again.
	require.True(t, num(t, x, "leaf", 9).OK)
	require.EqualValues(t, 5, w.Permits())
	require.False(t, w.TryUnmarkTasks())
	status("false true")
	require.EqualValues(t, 6, w.Permits())
	num(t, x, "unleaf", 9)
	status("false false")
}

// TestSignalPartition checks the partition summary of a worker that owns a partition of the signals of a SignalWaker.
func TestSignalPartition(t *testing.T) {
	a, w, x := twoSides(t)
	tree, err := prims.OpenSignalWaker(a, "tree", nil)
	require.NoError(t, err)
	sync := func(leaves int) answer { return num(t, x, "sync", leaves) }
	require.False(t, sync(10).OK)
	tree.Signal(3).Set(1)
	tree.Signal(9).Set(2)
	tree.Signal(10).Set(2)
	got := sync(10)
	require.True(t, got.OK)
	require.EqualValues(t, 1<<3|1<<9, got.N, "only the signals of the partition")
	require.EqualValues(t, 1, w.Permits())
	require.True(t, w.PartitionLeafHasWork(3))
	require.False(t, w.PartitionLeafHasWork(10))
	require.EqualValues(t, 1<<3|1<<9|1<<10, num(t, x, "sync", 64).N)
	tree.Signal(3).Acquire(1)
	require.EqualValues(t, 1<<9, sync(10).N, "a signal that is no longer in the partition leaves the summary, too")
	// A sync of an empty range clears the partition.
	got = sync(0)
	require.False(t, got.OK)
	require.Zero(t, got.N)
	require.Equal(t, "false false", num(t, x, "status", 0).Text)
	// A process that sets a bit in a leaf calls MarkPartitionLeafActive on the owner's waker.
	require.True(t, num(t, x, "leaf", 5).OK)
	require.False(t, w.MarkPartitionLeafActive(6))
	require.EqualValues(t, 1<<5|1<<6, w.PartitionSummary())
	num(t, x, "unleaf", 5)
	require.Equal(t, "false true", num(t, x, "status", 0).Text)
	w.ClearPartitionLeaf(6)
	require.Equal(t, "false false", num(t, x, "status", 0).Text)
	require.True(t, tree.SyncPartitionSummary(9, 11, nil), "a waker can be its own tree")
	require.EqualValues(t, 3, tree.PartitionSummary())
	require.NoError(t, tree.Close())
	require.Panics(t, func() { w.SyncPartitionSummary(9, 11, tree) }, "the handle of the tree is closed")
}

func TestSignalTasks(t *testing.T) {
	_, w, x := twoSides(t)
	seen := map[uint64]bool{}
	for range 200 {
		a := x.op(t, "reserve", "w")
		q, ok := w.ReserveTask()
		require.True(t, a.OK && ok)
		require.False(t, seen[a.N] || seen[uint64(q)] || a.N == uint64(q), "each queue once")
		seen[a.N], seen[uint64(q)] = true, true
	}
	require.Equal(t, 400, w.Tasks())
	for q := range seen { // each task was reserved by one of the two sides
		if x.do(t, order{Op: "unreserve", Object: "w", N: int(q)}).Panic != "" {
			w.ReleaseTask(int(q))
		}
	}
	require.Zero(t, w.Tasks())
	// When all tasks but one are reserved, the last one is found.
	for k := range 128 {
		q, ok := w.ReserveTaskIn(6, 8)
		require.True(t, ok, "the %d'th", k)
		require.True(t, q >= 6*64 && q < 8*64)
	}
	_, ok := w.ReserveTaskIn(6, 8)
	require.False(t, ok)
	_, ok = w.ReserveTaskIn(6, 6)
	require.False(t, ok)
	w.ReleaseTask(7*64 + 13)
	q, ok := w.ReserveTaskIn(6, 8)
	require.True(t, ok)
	require.Equal(t, 7*64+13, q)
	require.Equal(t, 128, w.Tasks())
}

func TestSignalWorkers(t *testing.T) {
	_, w, x := twoSides(t)
	w.RegisterWorker()
	num(t, x, "worker", 0)
	num(t, x, "worker", 0)
	require.Equal(t, 3, w.WorkerCount())
	num(t, x, "unworker", 0)
	require.EqualValues(t, 2, num(t, x, "workers", 0).N)
	num(t, x, "sleeper", 0)
	w.RegisterSleeper()
	require.Equal(t, 2, w.Sleepers())
	num(t, x, "unsleeper", 0)
	w.UnregisterSleeper()
	require.Zero(t, w.Sleepers())
	require.Contains(t, x.op(t, "unsleeper", "w").Panic, "without")
	w.UnregisterWorker()
	require.Equal(t, 1, w.WorkerCount())
}

// TestSignalCountsAreLimited: a registration beyond the limit panics. A wait beyond the limit is not counted, so the
// end of this wait does not reduce the count.
func TestSignalCountsAreLimited(t *testing.T) {
	w := newWaker(t, newArena(t, nil), nil)
	w.SetCounts(1<<15-1, 1<<20-2)
	require.PanicsWithValue(t, "shmsync: signal waker w: RegisterWorker: this process has 32767 workers, and can have no more", w.RegisterWorker)
	require.Equal(t, 1<<15-1, w.WorkerCount())
	w.UnregisterWorker()
	w.RegisterWorker()
	w.RegisterSleeper()
	require.PanicsWithValue(t, "shmsync: signal waker w: RegisterSleeper: this process has 1048575 sleepers, and can have no more", w.RegisterSleeper)
	require.Equal(t, 1<<20-1, w.Sleepers())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.AcquireContext(ctx), context.Canceled)
	require.Equal(t, 1<<20-1, w.Sleepers())
}

func TestSignalStats(t *testing.T) {
	a := newArena(t, nil)
	w := newWaker(t, a, &prims.SignalWakerOptions{Count: true})
	x := signalActor(t, a, "other")
	w.Gate(70).Schedule()
	require.True(t, num(t, x, "next", 0).OK)
	num(t, x, "finish-again", 70)
	g, ok := w.Next(70)
	require.True(t, ok)
	require.False(t, g.Finish())
	require.False(t, num(t, x, "next", 0).OK)
	num(t, x, "count", 5)
	w.Count(prims.StatStealAttempts, 1)
	w.PartitionLeafHasWork(0)
	w.MarkActive(1)
	s := w.Stats()
	require.EqualValues(t, 2, s[prims.StatTasksPolled])
	require.EqualValues(t, 1, s[prims.StatYielded])
	require.EqualValues(t, 1, s[prims.StatCompleted])
	require.EqualValues(t, 1, s[prims.StatEmptyScans])
	require.EqualValues(t, 2, s[prims.StatSignalPolls])
	require.EqualValues(t, 6, s[prims.StatStealAttempts])
	require.EqualValues(t, 1, s[prims.StatLeafSummaryChecks])
	require.EqualValues(t, 6, num(t, x, "stat", int(prims.StatStealAttempts)).N)
	// The counts remain after the process that counted has died.
	x.proc.Kill(t)
	alone(t, a, 1)
	require.Equal(t, s, w.Stats())
	y := signalActor(t, a, "its successor")
	num(t, y, "count", 1)
	require.EqualValues(t, 7, w.Stats()[prims.StatStealAttempts])
	h := w.Health()
	require.WithinDuration(t, time.Now(), h.At, time.Minute)
	require.Contains(t, w.String(), "signal waker w: 0 scheduled")
	for s := range prims.SignalStat(14) {
		require.NotContains(t, s.String(), "stat ")
	}
	require.Equal(t, "stat 14", prims.SignalStat(14).String())
}

// TestGate: two processes take a gate through all its states, step by step.
func TestGate(t *testing.T) {
	a, w, x := twoSides(t)
	g := w.Gate(130)
	require.Equal(t, 130, g.Queue())
	state := func(want string) { t.Helper(); require.Contains(t, g.String(), want) }
	require.False(t, g.Begin(), "nothing is scheduled")
	require.True(t, num(t, x, "schedule", 130).OK)
	require.False(t, g.Schedule(), "the queue is scheduled already")
	require.EqualValues(t, 1, w.Permits(), "one permit for the signal")
	require.True(t, w.Signal(2).IsSet(2))
	require.EqualValues(t, 1<<2, w.SnapshotSummary())
	num(t, x, "schedule", 131)
	require.EqualValues(t, 1, w.Permits(), "no permit for a second queue of the signal")
	require.False(t, num(t, x, "inline", 130).OK)

	// A program acquires the bit of the queue, and then begins the execution.
	require.True(t, w.Signal(2).Acquire(2))
	require.False(t, num(t, x, "take", 130).OK)
	require.True(t, g.Begin())
	require.False(t, num(t, x, "begin", 130).OK, "one executor at a time")
	require.False(t, g.Begin())
	st := g.State()
	require.True(t, st.Executing && !st.Scheduled)
	require.Equal(t, "test", st.Executor.Label)
	state("executing 1.1, epoch 1")
	require.False(t, num(t, x, "schedule", 130).OK, "the executor will schedule the queue")
	require.False(t, w.Signal(2).IsSet(2))
	state("executing 1.1, scheduled")
	require.Contains(t, x.do(t, order{Op: "finish", Object: "w", N: 130}).Panic, "does not execute")
	require.True(t, g.Finish(), "the queue was scheduled during the execution")
	require.Panics(t, func() { g.Finish() }, "a second Finish")
	require.True(t, w.Signal(2).IsSet(2))
	state("scheduled, epoch 1")

	// Next finds the scheduled queues, the nearest one first.
	require.EqualValues(t, 131, num(t, x, "next", 140).N)
	require.EqualValues(t, 130, num(t, x, "next", 140).N)
	require.Zero(t, w.SnapshotSummary(), "the last queue of a signal takes the signal out of the summary")
	require.False(t, num(t, x, "finish", 131).OK)
	num(t, x, "finish-again", 130)
	require.EqualValues(t, 2, w.Permits())
	require.True(t, g.Begin(), "an execution can begin without the bit")
	require.True(t, w.Signal(2).IsEmpty())
	require.Zero(t, w.SnapshotSummary())
	require.False(t, g.Finish())
	state("idle, epoch 3")
	require.True(t, num(t, x, "inline", 130).OK)
	require.False(t, g.TryBeginInline())
	require.False(t, num(t, x, "finish", 130).OK)
	idle(t, a, w)
}

// TestGateStaleBits: a stale bit, whose queue is not scheduled or is being executed, is cleared. It does not
// hide another bit.
func TestGateStaleBits(t *testing.T) {
	a, w, x := twoSides(t)
	num(t, x, "set", 1)
	num(t, x, "mark", 0)
	require.True(t, num(t, x, "inline", 2).OK)
	num(t, x, "set", 2)
	num(t, x, "schedule", 3)
	g, ok := w.Next(0)
	require.True(t, ok)
	require.Equal(t, 3, g.Queue())
	require.True(t, w.Signal(0).IsEmpty())
	require.False(t, g.Finish())
	num(t, x, "schedule", 2)
	require.True(t, num(t, x, "finish", 2).OK)
	g, ok = w.Next(0)
	require.True(t, ok)
	require.Equal(t, 2, g.Queue())
	g.FinishAndSchedule()
	// Hole A of the earlier protocol; see docs/testing/features.md. Next has cleared the bit of the signal in the
	// summary, and a Schedule during the execution does not set it. Finish has to set it.
	g, ok = w.Next(0)
	require.True(t, ok)
	require.Zero(t, w.SnapshotSummary())
	num(t, x, "schedule", 2)
	require.Zero(t, w.SnapshotSummary())
	require.True(t, g.Finish())
	require.EqualValues(t, 1, num(t, x, "summary", 0).N)
	g, _ = w.Next(0)
	g.Finish()
	idle(t, a, w)
}

// TestSignalWakesAnother: a worker begins an execution while other workers sleep and more queues are scheduled.
// It wakes one of the other workers.
func TestSignalWakesAnother(t *testing.T) {
	a, w, x := twoSides(t)
	id := x.start(order{Op: "acquire", Object: "w"})
	eventually(t, "it sleeps", func() string { return words(a) }, func() bool { return w.Sleepers() == 1 && w.Announced() })
	// Two queues of one signal are scheduled, and there is no permit, as if a worker had taken the permit and
	// then found both queues.
	w.SetGate(0, 1<<29)
	w.SetGate(1, 1<<29)
	w.Signal(0).SetMask(3)
	w.SetSummary(1)
	was := w.WakeSequence()
	g, ok := w.Next(0)
	require.True(t, ok)
	require.NotEqual(t, was, w.WakeSequence())
	x.wait(t, id)
	require.True(t, num(t, x, "next", 0).OK)
	require.False(t, g.Finish())
	num(t, x, "finish", 1)
	// A worker that calls Acquire while a queue is scheduled does not sleep.
	num(t, x, "schedule", 9)
	require.True(t, w.TryAcquire())
	w.Acquire()
	require.Zero(t, w.Permits())
	g, ok = w.Next(0)
	require.True(t, ok)
	require.False(t, g.Finish())
	idle(t, a, w)
}

// TestGateFencedOut: an executor was declared dead while it was not running. When it goes on, it can no longer
// change the gate.
func TestGateFencedOut(t *testing.T) {
	_, w, x := twoSides(t)
	old := w.Gate(5)
	old.Schedule()
	require.True(t, old.Begin())
	w.MarkOwnerDead(func(arena.ParticipantID) bool { return true })
	require.Contains(t, old.String(), "scheduled, epoch 2")
	require.True(t, w.Signal(0).IsSet(5))
	require.Panics(t, func() { old.Finish() })
	require.True(t, num(t, x, "next", 0).OK)
	was := w.GateWord(5)
	require.Panics(t, func() { old.Finish() })
	require.Panics(t, func() { old.FinishAndSchedule() })
	require.Equal(t, was, w.GateWord(5), "the old executor changes nothing of the next execution")
	require.False(t, num(t, x, "finish", 5).OK)
	// The old executor changes nothing, even if the next executor belongs to the same process.
	next := w.Gate(5)
	require.True(t, next.TryBeginInline())
	require.Panics(t, func() { old.Finish() })
	require.False(t, next.Finish())
}

// TestSignalClosedArena: when this process closes the arena, its waits end.
func TestSignalClosedArena(t *testing.T) {
	a := newArena(t, nil)
	w := newWaker(t, a, nil)
	x := signalActor(t, a, "closer")
	require.True(t, num(t, x, "inline", 4).OK)
	id := x.start(order{Op: "acquire", Object: "w"})
	far := x.start(order{Op: "acquire-ctx", Object: "w"})
	eventually(t, "both sleep", func() string { return words(a) }, func() bool { return w.Sleepers() == 2 })
	x.must(t, order{Op: "close-arena", Object: "w"})
	require.Contains(t, x.wait(t, id).Panic, "this handle is closed")
	require.Contains(t, x.wait(t, far).Is, "closed")
	alone(t, a, 1)
	require.Zero(t, w.Sleepers())
	g, ok := w.Next(0)
	require.True(t, ok, "what it executed is scheduled again: %s", words(a))
	require.Equal(t, 4, g.Queue())
	g.Finish()
	idle(t, a, w)
}

//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// signalStage has the signal wakers that an actor uses. An actor carries out orders, in this process or in
// another one.
type signalStage struct {
	a *arena.Arena
	contexts
	mu sync.Mutex
	w  map[string]*prims.SignalWaker
	g  map[string]*prims.Gate
}

func init() {
	registerActor("signal/actor", func(a *arena.Arena) stageOf[order] {
		return &signalStage{a: a, w: map[string]*prims.SignalWaker{}, g: map[string]*prims.Gate{}}
	})
}

// signalActor starts an actor in a separate process.
func signalActor(t testing.TB, a *arena.Arena, label string) *actor {
	t.Helper()
	return actorOf(t, a, "signal/actor", label)
}

// num carries out an order that has one number as its argument and must succeed.
func num(t testing.TB, x *actor, op string, n int) answer {
	t.Helper()
	return x.must(t, order{Op: op, Object: "w", N: n})
}

func (s *signalStage) perform(o order, a *answer) error {
	s.mu.Lock()
	w := s.w[o.Object]
	if w == nil {
		var err error
		if w, err = prims.OpenSignalWaker(s.a, o.Object, nil); err != nil {
			s.mu.Unlock()
			return err
		}
		s.w[o.Object] = w
	}
	s.mu.Unlock()
	gate := func(q int) *prims.Gate {
		s.mu.Lock()
		defer s.mu.Unlock()
		key := fmt.Sprint(o.Object, q)
		if s.g[key] == nil {
			s.g[key] = w.Gate(q)
		}
		return s.g[key]
	}
	bits := func(v uint64) { a.N = v }
	count := func(n int) { a.N = uint64(n) }
	switch o.Op {
	case "schedule":
		a.OK = gate(o.N).Schedule()
	case "begin":
		a.OK = gate(o.N).Begin()
	case "inline":
		a.OK = gate(o.N).TryBeginInline()
	case "finish":
		a.OK = gate(o.N).Finish()
	case "finish-again":
		gate(o.N).FinishAndSchedule()
	case "next":
		g, ok := w.Next(o.N)
		a.OK = ok
		if ok {
			count(g.Queue())
			s.mu.Lock()
			s.g[fmt.Sprint(o.Object, g.Queue())] = &g
			s.mu.Unlock()
		}
	case "walk": // executes N queues, and sleeps while none is scheduled
		for a.N < uint64(o.N) {
			if g, ok := w.Next(0); ok {
				g.Finish()
				a.N++
			} else {
				w.Acquire()
			}
		}
	case "set":
		empty, set := w.Signal(o.N / 64).Set(o.N % 64)
		a.OK, a.Text = set, fmt.Sprint(empty)
	case "take":
		a.OK = w.Signal(o.N / 64).Acquire(o.N % 64)
	case "mark":
		a.OK = w.MarkActive(o.N)
	case "mark-mask":
		bits(w.MarkActiveMask(o.Token))
	case "unmark":
		a.OK = w.TryUnmark(o.N)
	case "unmark-empty":
		a.OK = w.TryUnmarkIfEmpty(o.N)
	case "summary":
		bits(w.SnapshotSummary())
	case "select":
		count(w.SummarySelect(o.N))
	case "yield":
		a.OK = w.MarkYield()
	case "unyield":
		a.OK = w.TryUnmarkYield()
	case "tasks":
		a.OK = w.MarkTasks()
	case "untasks":
		a.OK = w.TryUnmarkTasks()
	case "status":
		y, ts := w.StatusBits()
		a.Text = fmt.Sprint(y, ts)
	case "try":
		a.OK = w.TryAcquire()
	case "acquire":
		w.Acquire()
	case "acquire-ctx":
		return w.AcquireContext(s.contexts.begin(o.ID, o.Limit, o.Done))
	case "acquire-lapsed": // calls AcquireContext N times, each with a deadline that has passed or is about to pass
		for k := range o.N {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(k%3))
			if w.AcquireContext(ctx) == nil {
				a.N++
			}
			cancel()
		}
	case "cancel":
		s.contexts.end(o.N)
	case "release":
		w.Release(o.N)
	case "permits":
		bits(w.Permits())
	case "sleepers":
		count(w.Sleepers())
	case "waiting":
		count(w.Waiters())
	case "sleeper":
		w.RegisterSleeper()
	case "unsleeper":
		w.UnregisterSleeper()
	case "worker":
		w.RegisterWorker()
	case "unworker":
		w.UnregisterWorker()
	case "workers":
		count(w.WorkerCount())
	case "reserve":
		q, ok := w.ReserveTask()
		a.OK = ok
		count(q)
	case "unreserve":
		w.ReleaseTask(o.N)
	case "count":
		w.Count(prims.StatStealAttempts, uint64(o.N))
	case "stat":
		bits(w.Stats()[o.N])
	case "leaf":
		a.OK = w.MarkPartitionLeafActive(o.N)
	case "unleaf":
		w.ClearPartitionLeaf(o.N)
	case "sync": // updates the partition summary from the signals 0 to N-1 of the waker "tree"
		tree, err := prims.OpenSignalWaker(s.a, "tree", nil)
		if err != nil {
			return err
		}
		a.OK = w.SyncPartitionSummary(0, o.N, tree)
		bits(w.PartitionSummary())
	case "state":
		a.Text = w.Gate(o.N).String()
	case "close":
		return w.Close()
	case "close-arena":
		return s.a.Close()
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}

func newWaker(t testing.TB, a *arena.Arena, opts *prims.SignalWakerOptions) *prims.SignalWaker {
	t.Helper()
	w, err := prims.OpenSignalWaker(a, "w", opts)
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// idle waits until w is as before its first use: without a bit, a permit or a sleeper.
func idle(t testing.TB, a *arena.Arena, w *prims.SignalWaker) {
	t.Helper()
	for w.TryAcquire() { // take the permits that are left over; Next must find nothing for them
		g, ok := w.Next(0)
		require.False(t, ok, "queue %d was scheduled", g.Queue())
	}
	h := w.Health()
	require.Zero(t, h.Summary, "%v\n%s", h, words(a))
	require.Zero(t, h.Signals+h.Scheduled+h.Executing+h.Sleepers, "%v\n%s", h, words(a))
	require.Zero(t, h.Permits, "%v", h)
}

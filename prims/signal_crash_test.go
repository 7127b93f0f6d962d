//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// These tests kill a process, the victim, at each crash point of the SignalWaker. Meanwhile a partner process and the
// test process use the same waker. If the victim dies after it has pushed an item and before it has scheduled the queue
// of the item, another process schedules the queue. In the end the queues of the victim have been executed.

const (
	victimQueue = 4*64 + 44 // not a queue of signalBoard; only the victim schedules it
	orphanQueue = 5*64 + 45 // a queue that a reap takes from the victim
)

func signalPoints() (points []string) {
	for _, p := range crashpoint.All() {
		if strings.HasPrefix(p, "signal.") {
			points = append(points, p)
		}
	}
	return points
}

func init() {
	// The victim has only one goroutine. With several goroutines, one could die at a crash point while another
	// has pushed an item and not yet called the Schedule that announces it.
	proctest.Register("signal/victim", func(c *proctest.Child) {
		s, _ := joinSignalSite(c, "victim")
		w, self := s.w, s.a.Self()
		quiet, err := prims.OpenSignalWaker(s.a, "quiet", nil)
		if err != nil {
			c.Fatal(err)
		}
		until(signalPoints(), func() {
			for k := range 4 {
				s.push(k)
				if g, ok := w.Next(queueAt(k)); ok {
					s.execute(&g)
				}
			}
			g := w.Gate(victimQueue)
			g.Schedule()
			if w.Signal(4).Acquire(44) && g.Begin() {
				g.FinishAndSchedule()
			}
			w.Signal(5).Set(3)
			w.MarkActive(5)
			if g, ok := w.Next(5 * 64); ok {
				s.execute(&g)
			}
			w.MarkTasks()
			w.TryUnmarkTasks()
			w.MarkPartitionLeafActive(3)
			w.SyncPartitionSummary(10, 14, nil)
			w.MarkPartitionLeafActive(1)
			w.ClearPartitionLeaf(1)
			if q, ok := w.ReserveTask(); ok {
				w.ReleaseTask(q)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(3000))*time.Microsecond)
			w.AcquireContext(ctx)
			cancel()
			// Two permits are released at once while a worker of another process sleeps.
			over := make(chan struct{})
			go func() { quiet.Acquire(); close(over) }()
			if err := waitUntil(timeout(), func() bool { return quiet.Sleepers() >= 2 }); err != nil {
				c.Fatal(err)
			}
			quiet.Release(2)
			if err := waitUntil(timeout(), func() bool {
				select {
				case <-over:
					return true
				default:
					quiet.Release(1) // the sleeping worker may have come back for another permit
					return false
				}
			}); err != nil {
				c.Fatal(err)
			}
			// Put the words into the state that a death leaves. Then a reaper has something to repair, and can
			// die while it does so.
			orphan := w.Gate(orphanQueue)
			if orphan.TryBeginInline() {
				w.MarkOwnerDead(func(n arena.ParticipantID) bool { return n == self })
			}
			w.ReserveTask()
			w.Repair(self)
		})
		lastWords(c, s.a)
	})
}

func TestSignalKillMatrix(t *testing.T) {
	if !crashpoint.Enabled {
		proctest.Skip(t, "needs the build tag crashpoint", "signal/victim")
	}
	s, procs := signalParty(t, 3, 15)
	a := s.a
	quiet, err := prims.OpenSignalWaker(a, "quiet", nil)
	require.NoError(t, err)
	var stopped atomic.Bool
	var asleep sync.WaitGroup
	asleep.Go(func() {
		for !stopped.Load() && quiet.AcquireContext(context.Background()) == nil {
		}
	})
	play := func(t *testing.T, env ...string) (passed map[string]int) {
		v := proctest.Start(t, "signal/victim", proctest.Params(crashParams{Arena: nameOf(a)}), proctest.Env(env...),
			proctest.Dump(func() string { return words(a) }), proctest.Limit(2*proctest.DefaultTimeout))
		switch e := v.Wait(t); {
		case e.Signal == syscall.SIGKILL:
		case e.OK():
			v.Recv(t, &passed)
		default:
			t.Fatalf("the victim: %v\nwords:\n%s", e, words(a))
		}
		alone(t, a, 2)
		if _, tasks := s.w.StatusBits(); s.w.PartitionSummary() != 0 && !tasks {
			t.Fatalf("the partition has leaves and no tasks\n%s", words(a))
		}
		require.NoError(t, s.goesOn(), "%s", words(a))
		procs[0].Send(1)
		procs[0].Await(t)
		for _, q := range []int{victimQueue, orphanQueue} {
			eventually(t, fmt.Sprintf("queue %d is looked after", q), func() string { return words(a) }, func() bool {
				st := s.w.Gate(q).State()
				return !st.Scheduled && !st.Executing
			})
		}
		eventually(t, "permits are taken by whoever sleeps", func() string { return words(a) }, func() bool {
			return quiet.Permits() == 0 && quiet.Sleepers() == 1
		})
		require.Zero(t, s.w.Tasks(), "the tasks that the victim had reserved are free")
		s.w.SyncPartitionSummary(0, 0, nil)
		sound(t, a)
		return passed
	}
	passed := play(t)
	require.NotNil(t, passed)
	for _, p := range signalPoints() {
		t.Run(p, func(t *testing.T) {
			require.Positive(t, passed[p], "the victim does not pass the point")
			require.Nil(t, play(t, "SHMSYNC_CRASHPOINT="+p), "the victim survived the point")
			if n := passed[p] / 2; n > 1 && !testing.Short() {
				play(t, fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", p, 1+rand.IntN(n)))
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("died at %d points", len(signalPoints()))
	stopped.Store(true)
	quiet.Release(1)
	asleep.Wait()
	require.NoError(t, quiet.Close())
	require.NoError(t, a.Delete("quiet"))
	drain(t, s, procs)
}

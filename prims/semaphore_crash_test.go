//go:build linux && crashpoint

package prims_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	proctest.Register("semaphore/timed out", func(c *proctest.Child) {
		var p timedOutParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		s, err := prims.AttachSemaphore(a, "s", nil)
		if err != nil {
			c.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			c.Await()
			cancel()
		}()
		s.AcquireContext(ctx, p.N)
	})
}

type timedOutParams struct {
	Arena string
	N     int64
}

// timedOut starts a process that waits for n permits and gives up. The process makes three records. The first makes it
// the owner of its share, the second queues the wait, and the third takes the wait off the queue. timedOut stops the
// process when the third record has taken effect, but is not carried out yet.
func timedOut(t *testing.T, a *arena.Arena, n int64) *proctest.Proc {
	p := proctest.Start(t, "semaphore/timed out", proctest.Params(timedOutParams{nameOf(a), n}), proctest.Env("SHMSYNC_CRASHPOINT_STOP=record.commit.named:3"))
	waiting(t, a, "s", 1)
	p.Send("cancel")
	p.AwaitStop(t)
	return p
}

// TestSemaphorePassesByWhoGaveUp: a waiter that gave up and was then stopped does not delay the waiters behind
// it.
func TestSemaphorePassesByWhoGaveUp(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 2, nil)
	require.True(t, s.TryAcquire(1))
	require.False(t, s.TryAcquire(2), "and reaps")
	p := timedOut(t, a, 2)
	ctx, cancel := context.WithTimeout(context.Background(), timeout())
	defer cancel()
	require.NoError(t, s.AcquireContext(ctx, 1))
	p.Cont(t)
	p.WaitExit(t)
}

// TestSemaphoreUntoldNodesAreUsedAgain: a process ends waits of others and dies before it wakes their owners.
// The owners notice by themselves that their waits have ended, and reuse the wait nodes.
func TestSemaphoreUntoldNodesAreUsedAgain(t *testing.T) {
	const waiters = 100
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", waiters, nil)
	for range 4 {
		p := proctest.Start(t, "semaphore", proctest.Params(nameOf(a)), proctest.Env("SHMSYNC_CRASHPOINT=record.wake.before"))
		p.Await(t)
		require.Empty(t, semDo(t, p, semOrder{Verb: "acquire", N: waiters}).Err)
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				if err := s.AcquireContext(context.Background(), 1); err != nil {
					t.Error(err)
					return
				}
				s.Release(1)
			})
		}
		semQueued(t, a, s, waiters)
		p.Send(semOrder{ID: 1, Verb: "release", N: waiters})
		p.WaitSignal(t, syscall.SIGKILL)
		wg.Wait()
		alone(t, a, 1)
		eventually(t, "no wait node owed", func() string { return park.DescribeWaitNodes((*arenakernel.Arena)(a)) }, func() bool { return park.DescribeWaitNodes((*arenakernel.Arena)(a)) == "" })
		require.LessOrEqual(t, a.Stats().Nodes, uint64(waiters+5))
	}
}

// TestSemaphoreDiesAccepting: a process is granted a permit of a transferable semaphore and dies. If the process dies
// before it has accepted the permit, the permit becomes free. If it dies later, the permit stays taken.
func TestSemaphoreDiesAccepting(t *testing.T) {
	for point, free := range map[string]int64{"record.await.resolved": 1, "semaphore.acquire.accepted": 0} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			s, err := prims.OpenSemaphore(a, "s", 1, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable, Initial: -1})
			require.NoError(t, err)
			for range 2 { // the second process gets the slot of the first
				p := proctest.Start(t, "semaphore", proctest.Params(nameOf(a)), proctest.Env("SHMSYNC_CRASHPOINT="+point))
				p.Await(t)
				p.Send(semOrder{ID: 1, Verb: "acquire", N: 1})
				eventually(t, "queued", func() string { return words(a) }, func() bool { return s.Queued() == 1 })
				s.Release(1)
				p.WaitSignal(t, syscall.SIGKILL)
				eventually(t, "taken back", func() string { return words(a) }, func() bool { return s.State().Free == free })
				alone(t, a, 1)
				require.Equal(t, free, s.State().Free)
				require.Equal(t, free == 1, s.TryAcquire(1))
			}
			sound(t, a)
		})
	}
}

// TestWaitersReapADeathThatIsNotCounted checks that a waiter gets the permits of a dead holder even if the reaper is
// held up. The reaper has marked the holder dead, but has not yet increased the count of deaths, by which a Semaphore
// notices a death. The periodic check of the waiter finds the dead holder nevertheless.
func TestWaitersReapADeathThatIsNotCounted(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 1, nil)
	p := semOther(t, a)
	semDo(t, p, semOrder{Verb: "try", N: 1})
	require.False(t, s.TryAcquire(1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.AcquireContext(ctx, 1), context.DeadlineExceeded) // now s has no death left to reap
	marked, goOn := make(chan struct{}), make(chan struct{})
	crashpoint.ArmFunc("arena.reap.marked", 1, func() { close(marked); <-goOn })
	defer crashpoint.Disarm()
	defer close(goOn)
	p.Kill(t)
	<-marked
	require.False(t, s.CountedDeath())
	ctx, cancel = context.WithTimeout(t.Context(), timeout())
	defer cancel()
	require.NoError(t, s.AcquireContext(ctx, 1), words(a))
	s.Release(1)
}

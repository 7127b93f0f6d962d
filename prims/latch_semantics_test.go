//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func newLatch(t testing.TB, a *arena.Arena, name string, n int64) *prims.Latch {
	t.Helper()
	l, err := prims.OpenLatch(a, name, n, nil)
	require.NoError(t, err)
	return l
}

func TestLatchBetweenProcesses(t *testing.T) {
	a := newArena(t, nil)
	l := newLatch(t, a, "l", 5)
	x, y := gateActor(t, a, "x"), gateActor(t, a, "y")
	require.False(t, l.TryWait())
	id := gateBlocked(t, a, x, l.Offset(), order{Op: "latch.wait", Object: "l"})
	arriving := gateBlocked(t, a, y, l.Offset(), order{Op: "latch.arrive", Object: "l", N: 1})
	l.CountDown(0)
	l.CountDown(2) // by two
	require.Equal(t, int64(2), l.State().Count)
	require.False(t, y.must(t, order{Op: "latch.try", Object: "l"}).OK)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, l.WaitContext(ctx))
	stillQueued(t, a, l.Offset(), 2)
	x.must(t, order{Op: "latch.down", Object: "l", N: 1})
	l.ArriveAndWait(1)
	gateSmooth(t, x.wait(t, id))
	gateSmooth(t, y.wait(t, arriving))
	// The latch stays at 0.
	l.Wait()
	require.NoError(t, l.WaitContext(ctx))
	require.True(t, l.TryWait())
	require.True(t, y.must(t, order{Op: "latch.try", Object: "l"}).OK)
	require.Equal(t, prims.LatchState{Size: 5}, l.State())
}

// TestLatchTorture: two processes use one latch after another, and each latch releases both.
func TestLatchTorture(t *testing.T) {
	n := proctest.Rounds(300, 3000)
	a := newArena(t, nil)
	x, y := gateActor(t, a, "x"), gateActor(t, a, "y")
	one := x.start(order{Op: "latch.race", Object: "l", N: n})
	gateSmooth(t, y.do(t, order{Op: "latch.race", Object: "l", N: n}))
	gateSmooth(t, x.wait(t, one))
	for i := range n {
		require.True(t, newLatch(t, a, fmt.Sprintf("l-%d", i), 2).TryWait())
	}
}

func TestLatchMisuse(t *testing.T) {
	a := newArena(t, nil)
	l := newLatch(t, a, "l", 2)
	require.PanicsWithValue(t, "shmsync: CountDown of 3 of latch l: more than are left", func() { l.CountDown(3) })
	require.PanicsWithValue(t, "shmsync: CountDown of -1 of latch l", func() { l.CountDown(-1) })
	require.PanicsWithValue(t, "shmsync: Claim of 3 of latch l: more than are left", func() { l.Claim(3) })
	require.PanicsWithValue(t, "shmsync: Claim of -1 of latch l", func() { l.Claim(-1) })
	require.Equal(t, int64(2), l.State().Count)
	x := gateActor(t, a, "x")
	require.Contains(t, x.do(t, order{Op: "latch.down", Object: "l", N: 3}).Panic, "more than are left")
	l.CountDown(2)
	require.Panics(t, func() { l.CountDown(1) })
	require.Contains(t, x.do(t, order{Op: "latch.down", Object: "l", N: 1}).Panic, "more than are left")
}

// TestLatchDeath: a death breaks a latch only if the dead process had claimed something and not
// counted it down. The latch works again when another process claims what is left, when other processes count it
// down, or when Reset forgets it.
func TestLatchDeath(t *testing.T) {
	for _, how := range []string{"claimed by another", "counted down by another", "reset"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			l := newLatch(t, a, "l", 4)
			silent, victim, waiter := gateActor(t, a, "silent"), gateActor(t, a, "victim"), gateActor(t, a, "waiter")
			silent.must(t, order{Op: "latch.down", Object: "l", N: 1})
			silent.proc.Kill(t) // what it counted down stays counted
			alone(t, a, 3)
			victim.must(t, order{Op: "latch.claim", Object: "l", N: 2})
			victim.must(t, order{Op: "latch.down", Object: "l", N: 1})
			id := gateBlocked(t, a, waiter, l.Offset(), order{Op: "latch.waitctx", Object: "l"})
			require.Equal(t, int64(2), l.State().Count)
			victim.proc.Kill(t)
			gateRefused(t, waiter.wait(t, id), "victim")
			gateRefused(t, waiter.do(t, order{Op: "latch.wait", Object: "l"}), "victim")
			require.False(t, l.TryWait())
			require.ErrorIs(t, l.State().Err, shmsync.ErrOwnerDead)
			switch how {
			case "claimed by another":
				l.Claim(1)
				require.NoError(t, l.State().Err)
				require.Equal(t, int64(1), l.State().Own)
				id = gateBlocked(t, a, waiter, l.Offset(), order{Op: "latch.waitctx", Object: "l"})
				l.CountDown(1)
				l.CountDown(1)
			case "counted down by another":
				l.CountDown(1)
				gateRefused(t, waiter.do(t, order{Op: "latch.waitctx", Object: "l"}), "victim")
				l.CountDown(1)
				id = waiter.start(order{Op: "latch.waitctx", Object: "l"})
			case "reset":
				require.True(t, l.Reset())
				require.False(t, l.Reset(), "nothing is owed")
				require.Equal(t, int64(1), l.State().Count)
				id = gateBlocked(t, a, waiter, l.Offset(), order{Op: "latch.waitctx", Object: "l"})
				l.CountDown(1)
			}
			gateSmooth(t, waiter.wait(t, id))
			require.Equal(t, prims.LatchState{Size: 4}, l.State())
			sound(t, a)
		})
	}
}

// TestLatchClaimAfterDeath: a process that takes the place of a dead one can at once claim what the
// dead process had claimed, even before a reaper has run.
func TestLatchClaimAfterDeath(t *testing.T) {
	a := newArena(t, nil)
	for i := range 20 {
		name := fmt.Sprint("l", i)
		l := newLatch(t, a, name, 1)
		x := gateActor(t, a, "victim")
		x.must(t, order{Op: "latch.claim", Object: name, N: 1})
		x.proc.Kill(t)
		l.Claim(1)
		l.ArriveAndWait(1)
	}
}

func TestLatchCancelRace(t *testing.T) {
	rounds := proctest.Rounds(300, 3_000)
	a := newArena(t, nil)
	for i := range rounds {
		l := newLatch(t, a, "", 2)
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%60)*time.Microsecond)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := l.ArriveAndWaitContext(ctx, 1); err != nil && err != context.DeadlineExceeded {
				t.Error(err)
			}
		})
		l.ArriveAndWait(1) // the other goroutine's wait ends, if it has not been cancelled
		wg.Wait()
		cancel()
		require.Zero(t, queued(a, l.Offset()))
		l.Close()
	}
}

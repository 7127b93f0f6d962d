//go:build linux

package prims_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func newWaitGroup(t testing.TB, a *arena.Arena, name string) *prims.WaitGroup {
	t.Helper()
	g, err := prims.OpenWaitGroup(a, name, nil)
	require.NoError(t, err)
	return g
}

// TestWaitGroupInOneProcess does what a test of package sync does. Two groups are used alternately, many times. No
// waiter of a group goes on before all work of that group is done.
func TestWaitGroupInOneProcess(t *testing.T) {
	a := newArena(t, nil)
	first, second := newWaitGroup(t, a, "first"), newWaitGroup(t, a, "second")
	for range 8 {
		const n = 16
		first.Add(n)
		second.Add(n)
		exited := make(chan bool, n)
		for range n {
			go func() {
				first.Done()
				second.Wait()
				exited <- true
			}()
		}
		first.Wait()
		for range n {
			require.Empty(t, exited, "a waiter goes on too early")
			second.Done()
		}
		for range n {
			<-exited
		}
	}
	require.Equal(t, prims.WaitGroupState{}, first.State())
}

func TestWaitGroupBetweenProcesses(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	x, y, waiter := gateActor(t, a, "x"), gateActor(t, a, "y"), gateActor(t, a, "waiter")
	g.Wait() // the count is 0
	gateSmooth(t, waiter.do(t, order{Op: "wg.wait", Object: "g"}))
	for range 3 {
		x.must(t, order{Op: "wg.add", Object: "g", N: 3})
		one := gateBlocked(t, a, waiter, g.Offset(), order{Op: "wg.wait", Object: "g"})
		two := gateBlocked(t, a, y, g.Offset(), order{Op: "wg.waitctx", Object: "g"})
		three := make(chan error, 1)
		go func() { three <- g.WaitContext(context.Background()) }()
		x.must(t, order{Op: "wg.done", Object: "g"})
		y.must(t, order{Op: "wg.add", Object: "g", N: -1}) // subtracts the 1 that another process has added
		require.Equal(t, int64(1), g.State().Count)
		require.GreaterOrEqual(t, queued(a, g.Offset()), 2, "a waiter goes on too early")
		g.Done()
		gateSmooth(t, waiter.wait(t, one))
		gateSmooth(t, y.wait(t, two))
		require.NoError(t, <-three)
		require.Equal(t, prims.WaitGroupState{}, g.State())
	}
}

// TestWaitGroupReuse: two processes alternately add work for each other, many times. No waiter goes on before the
// work of its round is done, and no count is lost.
func TestWaitGroupReuse(t *testing.T) {
	rounds := proctest.Rounds(5_000, 100_000)
	a := newArena(t, nil)
	ping, pong := newWaitGroup(t, a, "ping"), newWaitGroup(t, a, "pong")
	tr, err := arena.Value[gateTraces](a, "traces")
	require.NoError(t, err)
	x := gateActor(t, a, "x")
	ping.Add(1)
	id := x.start(order{Op: "wg.pingpong", Object: "ping", N: rounds})
	for i := range uint64(rounds) {
		pong.Add(1)
		tr.Count[0]++
		ping.Done()
		pong.Wait()
		require.Equal(t, i+1, tr.Count[1])
	}
	gateSmooth(t, x.wait(t, id))
	require.Equal(t, int64(1), ping.State().Count)
	require.Zero(t, pong.State().Count)
}

func TestWaitGroupGo(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	x := gateActor(t, a, "x")
	x.must(t, order{Op: "block"})
	for range 3 {
		x.must(t, order{Op: "wg.go", Object: "g", N: 5})
	}
	require.Equal(t, int64(3), g.State().Count)
	id := gateBlocked(t, a, x, g.Offset(), order{Op: "wg.wait", Object: "g"})
	x.must(t, order{Op: "unblock"})
	require.EqualValues(t, 15, x.wait(t, id).N)
	g.Wait()
	var done atomic.Bool
	g.Go(func() { done.Store(true) })
	g.Wait()
	require.True(t, done.Load())
}

// TestWaitGroupGoPanics: a function that Go runs panics, which ends the process. The work of the function does
// not count as done.
func TestWaitGroupGoPanics(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	x := gateActor(t, a, "x")
	x.must(t, order{Op: "block"})
	x.must(t, order{Op: "wg.go", Object: "g", Token: 1})
	require.Equal(t, int64(1), g.State().Count)
	x.start(order{Op: "unblock"})
	require.Contains(t, x.proc.Wait(t).Stderr, "as told")
	err := g.WaitContext(t.Context())
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	require.Equal(t, "x", identityOf(err).Label)
}

func TestWaitGroupMisuse(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	require.PanicsWithValue(t, "shmsync: negative WaitGroup counter: g", func() { g.Done() })
	g.Add(2)
	require.PanicsWithValue(t, "shmsync: negative WaitGroup counter: g", func() { g.Add(-3) })
	require.PanicsWithValue(t, "shmsync: negative WaitGroup counter: g", func() { g.Add(math.MinInt) })
	require.PanicsWithValue(t, "shmsync: WaitGroup g counter overflow", func() { g.Add(math.MaxInt) })
	require.Equal(t, int64(2), g.State().Count)
	x := gateActor(t, a, "x")
	require.Contains(t, x.do(t, order{Op: "wg.add", Object: "g", N: -3}).Panic, "negative WaitGroup counter")
	x.must(t, order{Op: "wg.add", Object: "g", N: -2})
	g.Wait()
	require.NoError(t, g.Close())
	require.ErrorIs(t, g.Close(), shmsync.ErrClosed)
}

// TestWaitGroupDeath: a process dies and leaves work of its own undone. Present and later waits fail until
// other processes have done that work, or until a Reset forgets it.
func TestWaitGroupDeath(t *testing.T) {
	for _, how := range []string{"done by others", "reset"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			g := newWaitGroup(t, a, "g")
			victim, waiter := gateActor(t, a, "victim"), gateActor(t, a, "waiter")
			victim.must(t, order{Op: "wg.add", Object: "g", N: 3})
			victim.must(t, order{Op: "wg.done", Object: "g"})
			waiter.must(t, order{Op: "wg.add", Object: "g", N: 1})
			one := gateBlocked(t, a, waiter, g.Offset(), order{Op: "wg.wait", Object: "g"})
			two := gateBlocked(t, a, waiter, g.Offset(), order{Op: "wg.waitctx", Object: "g"})
			victim.proc.Kill(t)
			gateRefused(t, waiter.wait(t, one), "victim")
			gateRefused(t, waiter.wait(t, two), "victim")
			alone(t, a, 2)
			require.ErrorIs(t, g.WaitContext(t.Context()), shmsync.ErrOwnerDead) // later waits fail, too
			st := g.State()
			require.ErrorIs(t, st.Err, shmsync.ErrOwnerDead)
			require.Equal(t, "victim", st.Who.Label)
			require.Equal(t, int64(3), st.Count)
			require.Contains(t, g.String(), "owner")
			if how == "reset" {
				require.True(t, g.Reset())
				require.Equal(t, int64(1), g.State().Count)
				id := gateBlocked(t, a, waiter, g.Offset(), order{Op: "wg.wait", Object: "g"})
				require.False(t, g.Reset(), "nothing is owed")
				waiter.must(t, order{Op: "wg.done", Object: "g"})
				gateSmooth(t, waiter.wait(t, id))
			} else {
				g.Add(-2)
				require.ErrorIs(t, g.WaitContext(t.Context()), shmsync.ErrOwnerDead)
				g.Done()
			}
			require.NoError(t, g.WaitContext(t.Context()))
			require.Equal(t, prims.WaitGroupState{}, g.State())
			// The counter works like a new one.
			g.Add(1)
			id := gateBlocked(t, a, waiter, g.Offset(), order{Op: "wg.wait", Object: "g"})
			g.Done()
			gateSmooth(t, waiter.wait(t, id))
			sound(t, a)
		})
	}
}

// TestWaitGroupDeathOfTheInnocent: the death of a process that has no work left of its own has no effect. Three
// processes die. The first has done the work that it had added. The second has only done work of others. The
// third has handed over its work: another process added the same work, and the third called Done.
func TestWaitGroupDeathOfTheInnocent(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	done, helper, giver := gateActor(t, a, "done"), gateActor(t, a, "helper"), gateActor(t, a, "giver")
	g.Add(3)
	done.must(t, order{Op: "wg.add", Object: "g", N: 2})
	done.must(t, order{Op: "wg.add", Object: "g", N: -2})
	helper.must(t, order{Op: "wg.done", Object: "g"})
	giver.must(t, order{Op: "wg.add", Object: "g", N: 1})
	g.Add(1) // this process takes over the work of the third
	giver.must(t, order{Op: "wg.done", Object: "g"})
	end := make(chan error, 1)
	go func() { end <- g.WaitContext(context.Background()) }()
	eventually(t, "it waits", func() string { return words(a) }, func() bool { return g.State().Waiting })
	for _, x := range []*actor{done, helper, giver} {
		x.proc.Kill(t)
	}
	alone(t, a, 1)
	require.Equal(t, int64(3), g.State().Count)
	require.Empty(t, end)
	g.Add(-3)
	require.NoError(t, <-end)
	// Work that was added before the counter reached 0 no longer counts.
	old := gateActor(t, a, "old")
	old.must(t, order{Op: "wg.add", Object: "g", N: 2})
	g.Add(-2)
	g.Add(1)
	go func() { end <- g.WaitContext(context.Background()) }()
	old.proc.Kill(t)
	alone(t, a, 1)
	require.Equal(t, int64(1), g.State().Count)
	require.NoError(t, g.State().Err)
	g.Done()
	require.NoError(t, <-end)
}

// TestWaitGroupSlotReused: a process that gets the slot of a dead process begins without work of its own.
func TestWaitGroupSlotReused(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 4 << 20, MaxParticipants: 2})
	g := newWaitGroup(t, a, "g")
	for range 5 {
		x := gateActor(t, a, "victim")
		x.must(t, order{Op: "wg.add", Object: "g", N: 2})
		x.proc.Kill(t)
		alone(t, a, 1)
		y := gateActor(t, a, "next")
		y.must(t, order{Op: "wg.add", Object: "g", N: 1})
		require.Equal(t, int64(3), g.State().Count)
		gateRefused(t, y.do(t, order{Op: "wg.wait", Object: "g"}), "victim")
		y.must(t, order{Op: "wg.done", Object: "g"})
		y.proc.Kill(t)
		alone(t, a, 1)
		err := g.WaitContext(t.Context())
		require.Equal(t, "victim", identityOf(err).Label)
		g.Reset()
		require.Equal(t, prims.WaitGroupState{}, g.State())
	}
}

// TestWaitGroupCancelRace: a context ends while the counter becomes 0. The wait ends for one of these two reasons.
// If the counter is 0, the wait succeeds. No waiter is left.
func TestWaitGroupCancelRace(t *testing.T) {
	rounds := proctest.Rounds(2_000, 20_000)
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, g.WaitContext(ended))
	g.Add(1)
	require.Equal(t, context.Canceled, g.WaitContext(ended))
	g.Done()
	given := 0
	for i := range rounds {
		g.Add(1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%60)*time.Microsecond)
		var wg sync.WaitGroup
		var errs [2]error
		for k := range errs {
			wg.Go(func() { errs[k] = g.WaitContext(ctx) })
		}
		g.Done()
		wg.Wait()
		cancel()
		for _, err := range errs {
			if err != nil {
				require.Equal(t, context.DeadlineExceeded, err)
				given++
			}
		}
	}
	t.Logf("%d of %d gave up", given, 2*rounds)
	require.Zero(t, queued(a, g.Offset()))
}

func TestWaitGroupStoppedParty(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	x := gateActor(t, a, "stopped")
	x.must(t, order{Op: "wg.add", Object: "g", N: 1})
	x.proc.Stop(t)
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Scale(300*time.Millisecond))
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, g.WaitContext(ctx)) // the other process is alive
	require.NoError(t, g.State().Err)
	x.proc.Cont(t)
	x.must(t, order{Op: "wg.done", Object: "g"})
	require.NoError(t, g.WaitContext(t.Context()))
}

// TestWaitGroupDeadWaiter: a process is killed while it waits, and leaves nothing behind.
func TestWaitGroupDeadWaiter(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	g.Add(1)
	x := gateActor(t, a, "x")
	for range 12 {
		gateBlocked(t, a, x, g.Offset(), order{Op: "wg.wait", Object: "g"})
	}
	x.proc.Signal(t, syscall.SIGKILL)
	eventually(t, "the waits are gone", func() string { return words(a) }, func() bool { return queued(a, g.Offset()) == 0 })
	g.Done()
	g.Wait()
}

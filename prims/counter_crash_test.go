//go:build linux && crashpoint

package prims_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestWaitGroupCrashOfReaper: a reaper turns the share of a dead participant into work that the
// dead owe. Then it dies, or is stopped, before it wakes the waiters. The waiters learn of the
// death all the same.
func TestWaitGroupCrashOfReaper(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		for _, logged := range []bool{false, true} {
			t.Run(fmt.Sprint(how, " logged ", logged), func(t *testing.T) {
				a := newArena(t, nil)
				g := newWaitGroup(t, a, "g")
				owner := gateActor(t, a, "owner")
				reaper := gateActor(t, a, "reaper", proctest.Env(how+"=counter.reap.lost:1"))
				x := gateActor(t, a, "x")
				owner.must(t, order{Op: "wg.add", Object: "g", N: 3})
				if logged {
					g.Add(1)
				}
				id := gateBlocked(t, a, x, g.Offset(), order{Op: "wg.waitctx", Object: "g"})
				asleep(t, a, "g")
				reaper.start(order{Op: "wg.reap", Object: "g", N: 2})
				reaper.proc.AwaitPoint(t, how)
				gateRefused(t, x.wait(t, id), "owner")
				require.True(t, g.Reset())
				g.Add(-int(g.State().Count))
				require.NoError(t, g.WaitContext(t.Context()))
			})
		}
	}
}

// TestWaitGroupTellsUnlocked: a goroutine that wakes waiters does not hold the private lock of its
// process meanwhile, because other objects of the process need that lock, too.
func TestWaitGroupTellsUnlocked(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	x := gateActor(t, a, "x")
	t.Cleanup(crashpoint.Disarm)
	begin := func() int {
		g.Add(1)
		x.must(t, order{Op: "wg.add", Object: "g", N: 1})
		return gateBlocked(t, a, x, g.Offset(), order{Op: "wg.waitctx", Object: "g"})
	}
	held := func(point string, f func()) (held bool) {
		hit := false
		crashpoint.ArmFunc(point, 1, func() { hit, held = true, g.PrivateHeld() })
		f()
		require.True(t, hit, "%s was not passed", point)
		return held
	}
	id := begin()
	require.False(t, held("counter.zero.told", func() { g.Add(-2) }))
	gateSmooth(t, x.wait(t, id))
	id = begin()
	require.False(t, held("counter.reap.lost", func() { g.Reap(func(slot int) bool { return slot == 2 }) }))
	gateRefused(t, x.wait(t, id), "x")
}

// TestWaitGroupWaitOfRestlessCounter: a Wait finds another record at each check, so it cannot find out
// which participant died. It ends with its context.
func TestWaitGroupWaitOfRestlessCounter(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	g.Add(1)
	t.Cleanup(crashpoint.Disarm)
	looks := 0
	var again func()
	again = func() {
		// The check of the waiter calls this function, which completes the record and makes another
		// one.
		if looks++; looks < 10_000 {
			crashpoint.ArmFunc("counter.commit.begun", 1, again)
		}
		g.Restless()
	}
	again()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.WaitContext(ctx), context.Canceled)
	require.Less(t, looks, 100)
}

// TestWaitGroupWaitBesideAReaperWithoutRoom: a reaper has no room for a slot record, so a waiter has to turn the share
// of the dead participant into work that the dead owe. The reaper has not counted the death yet. A wait that begins at
// this time finds the share before it sleeps.
func TestWaitGroupWaitBesideAReaperWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 5})
	g := newWaitGroup(t, a, "g")
	g.Add(1)
	const point = "SHMSYNC_CRASHPOINT_STOP"
	reaper := gateActor(t, a, "reaper", proctest.Env(point+"=arena.reap.repaired:1"))
	victim := gateActor(t, a, "victim")
	victim.must(t, order{Op: "wg.add", Object: "g", N: 3})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.WaitContext(ended), context.Canceled, "a wait has looked for dead participants")
	fill(t, a)
	reaper.proc.Stop(t)
	seen, goOn := make(chan struct{}), make(chan struct{})
	crashpoint.ArmFunc("arena.reap.seen", 1, func() { close(seen); <-goOn })
	t.Cleanup(func() { close(goOn); crashpoint.Disarm() })
	victim.proc.Kill(t)
	<-seen // the death watcher of this process reaps nobody from now on
	reaper.proc.Cont(t)
	reaper.proc.AwaitPoint(t, point)
	slept := crashpoint.HitCount("counter.wait.watched")
	err := g.WaitContext(t.Context())
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	require.Equal(t, "victim", identityOf(err).Label)
	require.Equal(t, slept, crashpoint.HitCount("counter.wait.watched"), "the wait has slept")
}

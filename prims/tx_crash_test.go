//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestUpdateAtEveryPoint: a process dies at each crash point of an Update and of a rollback. The data is whole,
// and no block is lost.
func TestUpdateAtEveryPoint(t *testing.T) {
	for _, point := range crashpoint.All() {
		if !strings.HasPrefix(point, "tx.") || point == "tx.log.lost" { // see TestLostLogAtItsPoint
			continue
		}
		t.Run(point, func(t *testing.T) {
			for range proctest.Rounds(1, 10) {
				dieInTx(t, point, false)
			}
		})
	}
}

// TestRWMutexUpdateAtEveryPoint is TestUpdateAtEveryPoint for an RWMutex.
func TestRWMutexUpdateAtEveryPoint(t *testing.T) {
	for _, point := range crashpoint.All() {
		if strings.HasPrefix(point, "tx.") && !strings.HasPrefix(point, "tx.rollback.") && point != "tx.log.lost" ||
			strings.HasPrefix(point, "rwmutex.rollback.") {
			t.Run(point, func(t *testing.T) {
				for range proctest.Rounds(1, 10) {
					dieInTx(t, point, true)
				}
			})
		}
	}
}

func dieInTx(t *testing.T, point string, rw bool) {
	a := newArena(t, &arena.Options{Size: 4 << 20})
	b, err := openTxBank(a, rw)
	require.NoError(t, err)
	start := func(env ...string) *proctest.Proc {
		v := proctest.Start(t, "tx/victim", proctest.Params(txParams{Arena: nameOf(a), RW: rw}), proctest.Dump(func() string { return words(a) }), proctest.Env(env...))
		return v
	}
	at := func(point string, n int) *proctest.Proc {
		return start("SHMSYNC_CRASHPOINT=" + fmt.Sprint(point, ":", n))
	}
	v := at(point, 1+rand.IntN(4))
	if strings.Contains(point, ".rollback.") {
		// Other processes die in an Update, one after another, until v undoes one of these Updates and dies at its
		// crash point.
		v.Await(t)
		for live := true; live; {
			at([]string{"tx.save.valid", "tx.alloc.logged", "tx.free.logged", "tx.commit.decided"}[rand.IntN(4)], 1+rand.IntN(9)).WaitSignal(t, syscall.SIGKILL)
			live = syscall.Kill(v.Pid(), 0) == nil && liveIn(a, v.Pid())
		}
	}
	v.WaitSignal(t, syscall.SIGKILL)
	for range 3 {
		require.NoError(t, look(t.Context(), b.m, func() { require.NoError(t, b.whole()) }))
		require.NoError(t, b.change())
	}
	alone(t, a, 1)
	require.NoError(t, a.Check())
	require.Equal(t, b.s.Count, a.Stats().Raw)
	require.Zero(t, a.Stats().Claimed)
	requireIdle(t, a, b.m)
}

// liveIn reports whether a process with that pid is in the arena.
func liveIn(a *arena.Arena, pid int) bool {
	for p := range a.Participants() {
		if p.Identity.PID == pid && p.State == "live" {
			return true
		}
	}
	return false
}

//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/prims"
)

// TestWaitGroupClaim: a parent adds work for two children, and each child claims its part. When one child dies, waits
// fail. After another process has claimed the part of the dead child, waits work again.
func TestWaitGroupClaim(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	parent, victim, child, waiter := gateActor(t, a, "parent"), gateActor(t, a, "victim"), gateActor(t, a, "child"), gateActor(t, a, "waiter")
	parent.must(t, order{Op: "wg.add", Object: "g", N: 3})
	victim.must(t, order{Op: "wg.claim", Object: "g", N: 2})
	child.must(t, order{Op: "wg.claim", Object: "g", N: 1})
	require.Equal(t, int64(3), g.State().Count)
	// After the claims the parent is not responsible for any of this work.
	id := gateBlocked(t, a, waiter, g.Offset(), order{Op: "wg.wait", Object: "g"})
	parent.proc.Kill(t)
	alone(t, a, 4)
	require.NoError(t, g.State().Err)
	victim.must(t, order{Op: "wg.done", Object: "g"})
	victim.proc.Kill(t)
	gateRefused(t, waiter.wait(t, id), "victim")
	require.Equal(t, int64(2), g.State().Count)
	g.Claim(1)
	require.Equal(t, prims.WaitGroupState{Count: 2, Own: 1}, g.State())
	id = gateBlocked(t, a, waiter, g.Offset(), order{Op: "wg.wait", Object: "g"})
	g.Done()
	child.must(t, order{Op: "wg.done", Object: "g"})
	gateSmooth(t, waiter.wait(t, id))
	sound(t, a)
}

// TestWaitGroupClaimAfterDeath: a parent is killed, and this process claims the parent's work right after that. The
// Claim succeeds even if no process has reaped the parent yet.
func TestWaitGroupClaimAfterDeath(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	for range 10 {
		parent := gateActor(t, a, "parent")
		parent.must(t, order{Op: "wg.add", Object: "g", N: 2})
		g.Done() // of the 2 that the parent has added, 1 is left
		parent.proc.Kill(t)
		g.Claim(1)
		require.PanicsWithValue(t, "shmsync: Claim of 1 of waitgroup g: more than there is to claim", func() { g.Claim(1) })
		g.Done()
		require.NoError(t, g.WaitContext(context.Background()))
	}
	require.Panics(t, func() { g.Claim(-1) })
	require.Equal(t, prims.WaitGroupState{}, g.State())
}

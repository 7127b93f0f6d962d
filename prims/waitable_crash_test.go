//go:build linux && crashpoint

package prims_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestWaitableDiesLosing: a rule fails in a process, and the process dies before it has ended the waits. The
// waiters still get the error.
func TestWaitableDiesLosing(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	k.x.Update(func(s *stock) { s.Free = 1 })
	dies := newStockist(t, a, proctest.Env("SHMSYNC_CRASHPOINT=waitable.lose.marked"))
	require.Equal(t, stockAnswer{ID: 1}, dies.do(t, "wait", panicsInRelease))
	other := newStockist(t, a)
	waits := other.begin("wait", fine)
	eventually(t, "queued", func() string { return words(a) }, func() bool { return k.x.Queued() == 1 })
	dies.begin("release", panicsInRelease)
	dies.WaitSignal(t, syscall.SIGKILL)
	got := other.answer(t, waits)
	require.True(t, got.Lost, "%+v", got)
	isLost(t, k.x, "this release fails", stock{0, 1}, other)
	sound(t, a)
}

// TestWaitableDiesAccepting: a process dies right after it has accepted a claim, and OnDeath undoes the claim.
// If the process dies before it has accepted the claim, Undo is called instead, because the process never used
// the claim.
func TestWaitableDiesAccepting(t *testing.T) {
	for point, want := range map[string]outcomes{
		"monitor.await.resolved": {Claimed: 1, Undone: 1},
		"waitable.wait.accepted": {Claimed: 1, Reaped: 1},
	} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			x, err := openOutcomes(a)
			require.NoError(t, err)
			p := proctest.Start(t, "waitable/outcomes", proctest.Params(nameOf(a)), proctest.Env("SHMSYNC_CRASHPOINT="+point))
			p.Await(t)
			eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == 1 })
			x.Update(func(s *outcomes) { s.Free++ })
			p.WaitSignal(t, syscall.SIGKILL)
			eventually(t, "undone", func() string { return words(a) }, func() bool { return x.State() == want })
			sound(t, a)
		})
	}
}

// TestWaitableWaitReturnsWithItsClaimInTheState: a Wait returns only when the state contains its claim. This
// holds even if the granter dies after it has ended the wait and before it has changed the state.
func TestWaitableWaitReturnsWithItsClaimInTheState(t *testing.T) {
	a := newArena(t, nil)
	// The waiter spins so long that it sees at once when its wait ends.
	x, err := prims.OpenWaitable(a, "stock", stock{}, failingRules, &prims.WaitableOptions{Spin: time.Minute})
	require.NoError(t, err)
	dies := newStockist(t, a, proctest.Env("SHMSYNC_CRASHPOINT=monitor.resolve.resolved"))
	seen := make(chan stock, 1)
	go func() {
		if x.Wait(fine) == nil {
			seen <- x.State()
		}
		close(seen)
	}()
	eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == 1 })
	dies.begin("free", fine)
	dies.WaitSignal(t, syscall.SIGKILL)
	require.Equal(t, stock{0, 1}, <-seen)
	sound(t, a)
}

// TestWaitableDiesInTheMiddleOfAChange: a claim or a release changes both the state and the hold of the
// process. A process that dies in the middle of it has changed both or neither. So the state is correct after
// the hold was taken back.
func TestWaitableDiesInTheMiddleOfAChange(t *testing.T) {
	for _, point := range []string{"monitor.commit.logged", "monitor.commit.begun:1", "monitor.commit.begun:2"} {
		for _, op := range []string{"try", "release"} {
			t.Run(point+"/"+op, func(t *testing.T) {
				a := newArena(t, nil)
				k, err := openStocked(a)
				require.NoError(t, err)
				k.x.Update(func(s *stock) { s.Free = 1 })
				at := map[string]string{"monitor.commit.logged": "monitor.commit.logged:2", "monitor.commit.begun:1": "monitor.commit.begun:5", "monitor.commit.begun:2": "monitor.commit.begun:6"}[point]
				if op == "try" {
					at = point
				}
				victim := newStockist(t, a, proctest.Env("SHMSYNC_CRASHPOINT="+at))
				if op == "release" {
					require.True(t, victim.do(t, "try", fine).OK)
				}
				victim.begin(op, fine)
				victim.WaitSignal(t, syscall.SIGKILL)
				alone(t, a, 1)
				require.True(t, k.x.TryWait(fine))
				require.Equal(t, stock{Free: 0, Taken: 1}, k.x.State())
				sound(t, a)
			})
		}
	}
}

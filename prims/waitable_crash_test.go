//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
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
		"record.await.resolved":  {Claimed: 1, Undone: 1},
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

// TestWaitableDiesInTheMiddleOfAChange: a claim or a release changes both the state and the hold of the process, and
// a grant also changes the queue. A process that dies in the middle of such a change has changed all or nothing. So
// the state is correct after the hold was taken back.
func TestWaitableDiesInTheMiddleOfAChange(t *testing.T) {
	type step struct {
		point string
		hit   int32
	}
	// The op "try" changes three words, "release" changes two, and "free" changes one. The grant after "release" or
	// "free" changes seven more words.
	for op, changed := range map[string]int32{"try": 3, "release": 9, "free": 8} {
		steps := []step{{"waitable.update.copied", 1}, {"record.commit.written", 1}, {"record.commit.named", 1}, {"record.commit.completed", 1}}
		for i := range changed {
			steps = append(steps, step{"record.complete.begun", i + 1})
		}
		for _, at := range steps {
			t.Run(fmt.Sprintf("%s/%s:%d", op, at.point, at.hit), func(t *testing.T) {
				a := newArena(t, nil)
				dump := func() string { return words(a) }
				k, err := openStocked(a)
				require.NoError(t, err)
				k.x.Update(func(s *stock) { s.Free = 1 })
				victim := newStockist(t, a)
				waits := make(chan error, 1)
				if op != "try" {
					require.True(t, victim.do(t, "try", fine).OK)
					go func() { waits <- k.x.Wait(fine) }()
					eventually(t, "queued", dump, func() bool { return k.x.Queued() == 1 })
				}
				victim.do(t, "arm "+at.point, at.hit)
				victim.begin(op, fine)
				victim.WaitSignal(t, syscall.SIGKILL)
				alone(t, a, 1)
				if op == "try" {
					require.NoError(t, k.x.Wait(fine))
				} else {
					require.NoError(t, <-waits)
				}
				want := stock{Taken: 1}
				if op == "free" && at.point != "waitable.update.copied" && at.point != "record.commit.written" {
					want.Free = 1 // the change had happened, and the claim of the dead process was undone
				}
				require.Equal(t, want, k.x.State())
				sound(t, a)
			})
		}
	}
}

// TestWaitableRecoveredBeforeItsWaitsEnd: a rule fails in a process. Before the process ends the waits, another process
// recovers the Waitable, and a wait is queued. The first process leaves the wait alone, and goes on.
func TestWaitableRecoveredBeforeItsWaitsEnd(t *testing.T) {
	a := newArena(t, nil)
	other := newStockist(t, a)
	rules, fails, calls := failingRules, true, 0
	rules.Claim = func(s *stock, e int32) bool {
		calls++
		if fails {
			panic("this claim fails")
		}
		return failingRules.Claim(s, e)
	}
	x, err := prims.OpenWaitable(a, "stock", stock{}, rules, &prims.WaitableOptions{Spin: -1})
	require.NoError(t, err)
	waits := 0
	crashpoint.ArmFunc("waitable.lose.marked", 1, func() {
		require.Empty(t, other.do(t, "recover", fine).Err)
		waits = other.begin("wait", fine)
		eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == 1 })
	})
	defer crashpoint.Disarm()
	require.PanicsWithValue(t, "this claim fails", func() { x.TryWait(fine) })
	require.Equal(t, 1, calls, "no rule runs for the wait of the other process")
	fails = false
	require.NoError(t, x.Err())
	x.Update(func(s *stock) { s.Free++ })
	require.Equal(t, stockAnswer{ID: waits}, other.answer(t, waits))
}

// TestWaitableRecoveredWhileAGoroutineEnds: a rule ends a goroutine. Before the goroutine has ended, another process
// recovers the Waitable. The Waitable stays usable.
func TestWaitableRecoveredWhileAGoroutineEnds(t *testing.T) {
	a := newArena(t, nil)
	other := newStockist(t, a)
	rules := failingRules
	rules.Claim = func(*stock, int32) bool {
		runtime.Goexit()
		return false
	}
	x, err := prims.OpenWaitable(a, "stock", stock{}, rules, &prims.WaitableOptions{Spin: -1})
	require.NoError(t, err)
	require.Equal(t, stock{}, x.State()) // the first call of a handle reaps, and serves the queue
	waits := other.begin("wait", fine)
	eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == 1 })
	crashpoint.ArmFunc("waitable.lose.marked", 1, func() { require.Empty(t, other.do(t, "recover", fine).Err) })
	defer crashpoint.Disarm()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		x.Update(func(s *stock) {
			s.Free++
		})
	}()
	<-ended
	require.Equal(t, stockAnswer{ID: waits}, other.answer(t, waits), "the other process has recovered the Waitable")
	require.NoError(t, x.Err())
}

// TestWaitableRecoveredByAStoppedProcess: a process dies while the Waitable is not recoverable. Another process
// recovers the Waitable, and is stopped at once. The others undo the claim of the dead process.
func TestWaitableRecoveredByAStoppedProcess(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	victim, recovers := newStockist(t, a), newStockist(t, a)
	k.x.Update(func(s *stock) { s.Free = 1 })
	require.Equal(t, stockAnswer{ID: 1}, victim.do(t, "wait", fine))
	require.PanicsWithValue(t, "this claim fails", func() { k.x.TryWait(panicsInClaim) })
	victim.Kill(t)
	alone(t, a, 2)
	k.x.Check() // reaps the dead process without a rule, and must not forget its claim
	require.False(t, k.x.TryWait(fine))
	recovers.do(t, "stop at record.commit.completed", 1)
	recovers.begin("recover", fine)
	recovers.AwaitStop(t)
	require.NoError(t, k.x.Err())
	eventually(t, "the claim is undone", func() string { return words(a) }, func() bool { return k.x.TryWait(fine) })
	require.Equal(t, stock{0, 1}, k.x.State())
	recovers.Cont(t)
}

// TestWaitableGrantOfAStoppedProcess: a process grants a wait, and is stopped before it has carried out all of the
// record. The process of the waiter carries out the rest by itself.
func TestWaitableGrantOfAStoppedProcess(t *testing.T) {
	for hit := range int32(7) {
		t.Run(fmt.Sprint(hit+1), func(t *testing.T) {
			a := newArena(t, nil)
			k, err := openStocked(a)
			require.NoError(t, err)
			releases := newStockist(t, a)
			k.x.Update(func(s *stock) { s.Free = 1 })
			require.True(t, releases.do(t, "try", fine).OK)
			waits := make(chan error, 1)
			go func() { waits <- k.x.Wait(fine) }()
			eventually(t, "queued", func() string { return words(a) }, func() bool { return k.x.Queued() == 1 })
			// A release changes two words, and the grant after it changes seven.
			releases.do(t, "stop at record.complete.begun", 2+hit+1)
			releases.begin("release", fine)
			releases.AwaitStop(t)
			select {
			case err := <-waits:
				require.NoError(t, err)
			case <-after(timeout()):
				t.Fatalf("the waiter waits for a stopped process\n%s", words(a))
			}
			require.Equal(t, stock{0, 1}, k.x.State())
			releases.Cont(t)
		})
	}
}

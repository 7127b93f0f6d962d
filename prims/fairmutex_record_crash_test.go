//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// fairVictim starts a process that stops, or dies, when it passes a crash point.
func fairVictim(t *testing.T, a *arena.Arena, variable, point string) *actor {
	t.Helper()
	return actorOf(t, a, "lock-actor", "victim", proctest.Env(variable+"="+point))
}

// fairGranted makes x the holder by a grant. Such a hold begins with a record, so the owner word is
// closed.
func fairGranted(t *testing.T, f *prims.FairMutex, x *actor) {
	t.Helper()
	f.Lock()
	id := fairQueued(t, f, x, order{Op: "flock"})
	f.Unlock()
	require.Empty(t, x.wait(t, id).Panic)
}

// TestFairMutexTryLockSeesACommittedUnlock: a process commits the record of an Unlock and is
// stopped before it carries the record out. The Unlock has still taken effect: TryLock of another
// process carries the record out and gets the lock.
func TestFairMutexTryLockSeesACommittedUnlock(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	x := fairVictim(t, a, "SHMSYNC_CRASHPOINT_STOP", "record.commit.named:2") // the first record of x queues its wait
	fairGranted(t, f, x)
	require.False(t, f.TryLock())
	id := x.start(order{Op: "funlock", Object: "f"})
	x.proc.AwaitStop(t)
	require.True(t, f.TryLock(), "%v", f)
	x.proc.Cont(t)
	require.Empty(t, x.wait(t, id).Panic)
	require.False(t, f.TryLock(), "the process that was stopped has unlocked the lock a second time")
	f.Unlock()
	require.True(t, f.TryLock())
	f.Unlock()
	sound(t, a)
}

// TestFairMutexDiesAccepting: a waiter that dies before it accepts the lock has never held it. A waiter that dies
// after it has accepted the lock counts as a holder that died.
func TestFairMutexDiesAccepting(t *testing.T) {
	for point, held := range map[string]bool{"record.await.resolved": false, "fairmutex.lock.accepted": true} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			f := openFair(t, a, nil)
			for range 2 { // in round 2, fairMutexWords.accepted names an earlier participant of the same slot
				x := fairVictim(t, a, "SHMSYNC_CRASHPOINT", point)
				f.Lock()
				fairQueued(t, f, x, order{Op: "flock"})
				p := f.LockAsync()
				f.Unlock()
				x.proc.WaitSignal(t, syscall.SIGKILL)
				err := p.Wait()
				if held {
					require.ErrorIs(t, err, shmsync.ErrOwnerDead)
					require.NoError(t, f.Recover(func() error { return nil }))
				} else {
					require.NoError(t, err)
					f.Unlock()
				}
				alone(t, a, 1)
			}
			require.True(t, f.TryLock())
			f.Unlock()
			sound(t, a)
		})
	}
}

// TestFairMutexSecondGrantToTheSameParticipant: a participant is granted the lock twice in a row, accepts the first
// grant, and dies before it accepts the second. The second grant must not count as accepted.
func TestFairMutexSecondGrantToTheSameParticipant(t *testing.T) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	x := fairVictim(t, a, "SHMSYNC_CRASHPOINT", "record.await.resolved:2")
	f.Lock()
	first := fairQueued(t, f, x, order{Op: "flock"})
	fairQueued(t, f, x, order{Op: "flock"})
	f.Unlock()
	require.Empty(t, x.wait(t, first).Panic)
	x.start(order{Op: "funlock", Object: "f"})
	x.proc.WaitSignal(t, syscall.SIGKILL)
	require.NoError(t, f.LockContext(t.Context()))
	f.Unlock()
	sound(t, a)
}

// TestFairMutexStoppedAtEachPoint stops a process at each crash point of a call. While the process
// is stopped, it either visibly has the lock, or others get it, and no other call hangs. When the
// process is killed, whatever it had goes to others.
//
// Until the victim has queued its wait, the test makes no other call that uses the queue. Such a call would carry out
// the change of the victim, which would then not reach some of its crash points.
func TestFairMutexStoppedAtEachPoint(t *testing.T) {
	for point, times := range map[string]int{
		"record.wait.prepared": 1, "record.commit.written": 2, "record.commit.named": 2, "record.complete.begun": 5, "record.commit.completed": 2,
		"record.await.resolved": 1, "fairmutex.lock.accepted": 1, "fairmutex.unlock.committed": 1, "record.tell.resolved": 1,
		"record.wake.before": 1,
	} {
		for n := 1; n <= times; n++ {
			what := fmt.Sprintf("%s:%d", point, n)
			t.Run(what, func(t *testing.T) { fairStoppedAt(t, what) })
		}
	}
}

func fairStoppedAt(t *testing.T, what string) {
	a := newArena(t, nil)
	f := openFair(t, a, nil)
	y := lockActor(t, a, "other")
	y.must(t, order{Op: "fopen", Object: "f"})
	x := fairVictim(t, a, "SHMSYNC_CRASHPOINT_STOP", what)
	f.Lock()
	x.start(order{Op: "fspin", Object: "f", N: 1})
	v := idOf(a, "victim")
	eventually(t, "the victim waits or is stopped", x.dump, func() bool { return isStopped(x.proc) || f.CarriedOut(v) })
	p := f.LockAsync()
	f.Unlock()
	has := func() bool { s := f.State(); return s.Held && s.Owner != nil && s.Owner.Label == "victim" }
	done := func() bool {
		select {
		case <-p.Done():
			return true
		default:
			return false
		}
	}
	x.proc.AwaitStop(t)
	eventually(t, "the victim has the lock, or the wait ends", x.dump, func() bool { return has() || done() })
	require.Contains(t, y.do(t, order{Op: "flockctx", Object: "f", Limit: 50 * time.Millisecond}).Is, "ctx-deadline")
	require.False(t, f.TryLock())
	x.proc.Kill(t)
	switch err := p.Wait(); {
	case err != nil:
		require.ErrorIs(t, err, shmsync.ErrOwnerDead)
		require.NoError(t, f.Recover(func() error { return nil }))
	default:
		f.Unlock()
	}
	y.must(t, order{Op: "flock", Object: "f"})
	y.must(t, order{Op: "funlock", Object: "f"})
	require.True(t, f.TryLock())
	f.Unlock()
	require.NoError(t, f.Close())
	y.proc.Kill(t)
	alone(t, a, 1)
	require.Zero(t, a.Stats().Claimed)
	sound(t, a)
}

// TestFairMutexStoppedInAFastPath: a process is stopped or dies in a fast path. While it is
// stopped, either it visibly has the lock, or it has unlocked the lock.
func TestFairMutexStoppedInAFastPath(t *testing.T) {
	for point, held := range map[string]bool{"fairmutex.lock.taken": true, "fairmutex.unlock.freed": false} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			f := openFair(t, a, nil)
			x := fairVictim(t, a, "SHMSYNC_CRASHPOINT_STOP", point)
			x.start(order{Op: "fspin", Object: "f", N: 1})
			x.proc.AwaitStop(t)
			require.Equal(t, held, f.State().Held)
			require.Equal(t, !held, f.TryLock())
			if !held {
				f.Unlock()
			}
			x.proc.Kill(t)
			if held {
				require.ErrorIs(t, f.LockContext(t.Context()), shmsync.ErrOwnerDead)
				require.NoError(t, f.Recover(func() error { return nil }))
			}
			require.True(t, f.TryLock())
			f.Unlock()
			sound(t, a)
		})
	}
}

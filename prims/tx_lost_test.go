//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// lostStep says what a process does with the lock and the ledger, the data of the lock, before it dies.
type lostStep struct {
	Arena, Step string
	RW          bool // the lock is an RWMutex
}

func init() {
	proctest.Register("tx/lost", func(c *proctest.Child) {
		var p lostStep
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		m, err := openTxLock(a, p.RW, 0)
		if err != nil {
			c.Fatal(err)
		}
		l, err := arena.Value[ledger](a, "ledger")
		if err != nil {
			c.Fatal(err)
		}
		die := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }
		switch p.Step {
		case "unlocks in an Update":
			m.Update(func(tx *prims.Tx) error {
				prims.Set(tx, &l.From, 5)
				m.Unlock()
				die()
				return nil
			})
		case "dies in an Update", "waits in an Update":
			m.Update(func(tx *prims.Tx) error {
				prims.Save(tx, l)
				l.From, l.To = 5, 6
				if p.Step == "dies in an Update" {
					die()
				}
				c.Ready()
				c.Await()
				return nil
			})
		case "changes":
			m.Lock()
			l.From = 7
			die()
		case "changes when told":
			m.Lock()
			c.Ready()
			c.Await()
		case "goes on after it has unlocked in an Update":
			func() {
				defer func() {
					if recover() == nil {
						c.Fatal("Update has not panicked")
					}
				}()
				m.Update(func(tx *prims.Tx) error {
					prims.Set(tx, &l.From, 5)
					m.Unlock()
					return nil
				})
			}()
			m.Lock()
			l.From = 9
			die()
		case "repairs":
			m.Recover(func() error {
				l.From = 8
				die()
				return nil
			})
		case "reaps":
			c.Ready()
			c.Await() // wait for ever: the reaper dies at a crash point
		case "updates":
			c.Ready()
			c.Await()
			m.Update(func(*prims.Tx) error { return nil })
		}
		c.Fatal(p.Step + " has not ended this process")
	})
}

func lostDies(t *testing.T, path, step string, env ...string) {
	t.Helper()
	proctest.Start(t, "tx/lost", proctest.Params(lostStep{Arena: path, Step: step}), proctest.Env(env...)).WaitSignal(t, syscall.SIGKILL)
}

// requireLost requires that m is not recoverable, that no change was undone, and that a Recover makes m usable.
func requireLost(t *testing.T, a *arena.Arena, m txLock, l *ledger, from int64) {
	t.Helper()
	require.ErrorIs(t, m.LockContext(t.Context()), shmsync.ErrNotRecoverable)
	err := m.Update(func(*prims.Tx) error { return nil })
	require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
	require.ErrorIs(t, err, shmsync.ErrCorrupt)
	require.Equal(t, from, l.From)
	require.NoError(t, a.Check())
	require.NoError(t, m.Recover(func() error { return nil }))
	requireIdle(t, a, m)
	alone(t, a, 1)
}

// TestRecoverThatDiesIsNotRolledBack: a lock is not recoverable, and a process dies during the repair of a
// Recover. The next holder does not undo the old transaction, because that would overwrite the work of the
// repair.
func TestRecoverThatDiesIsNotRolledBack(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	lostDies(t, nameOf(a), "unlocks in an Update")
	require.Equal(t, int64(5), l.From)
	require.ErrorIs(t, m.Update(func(*prims.Tx) error { return nil }), shmsync.ErrCorrupt)
	for range 2 {
		lostDies(t, nameOf(a), "repairs")
	}
	requireLost(t, a, m, l, 8)
}

// TestLogOfAnotherHolderIsNotUndone: a holder dies, and the log names another process, which held the lock
// earlier. This log is not undone, because the dead holder may have changed the data since then.
func TestLogOfAnotherHolderIsNotUndone(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	lostDies(t, nameOf(a), "unlocks in an Update")
	lostDies(t, nameOf(a), "changes")
	requireLost(t, a, m, l, 7)
}

// TestLostLogAtItsPoint: a process dies, or is stopped, just after it has marked the log as lost. Until then no
// other process is in the arena. Otherwise the other process might mark the log first.
func TestLostLogAtItsPoint(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for _, stop := range []bool{false, true} {
		for step, from := range map[string]int64{"reaps": 7, "updates": 5} {
			t.Run(fmt.Sprintf("%s, stopped %v", step, stop), func(t *testing.T) {
				a := newArena(t, nil)
				newRollback(t, a, 0)
				path := nameOf(a)
				require.NoError(t, a.Close())
				env := "SHMSYNC_CRASHPOINT=tx.log.lost"
				if stop {
					env = "SHMSYNC_CRASHPOINT_STOP=tx.log.lost"
				}
				v := proctest.Start(t, "tx/lost", proctest.Params(lostStep{Arena: path, Step: step}), proctest.Env(env))
				v.Await(t)
				lostDies(t, path, "unlocks in an Update")
				if step == "reaps" {
					lostDies(t, path, "changes") // v is the only process that can reap the dead process
				} else {
					v.Send(true)
				}
				if stop {
					v.AwaitStop(t)
				} else {
					v.WaitSignal(t, syscall.SIGKILL)
				}
				a, err := arena.Attach(path, nil)
				require.NoError(t, err)
				defer a.Close()
				m, l := newRollback(t, a, 0)
				if stop && step == "updates" {
					require.ErrorIs(t, m.LockContext(canceled(t)), context.Canceled) // the stopped process holds the lock
				} else {
					require.ErrorIs(t, m.LockContext(t.Context()), shmsync.ErrNotRecoverable)
				}
				if stop {
					v.Kill(t)
				}
				requireLost(t, a, m, l, from)
			})
		}
	}
}

// TestStaleReaperLeavesALivingTransaction: a reaper is stopped after it has read the owner word of a holder
// that is gone. When the reaper goes on, the next holder, which is alive, is in a transaction. The reaper does
// not mark the log of that transaction as lost.
func TestStaleReaperLeavesALivingTransaction(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	p := proctest.Start(t, "tx/lost", proctest.Params(lostStep{Arena: nameOf(a), Step: "changes when told"}))
	p.Await(t)
	stale := m.OwnerWord()
	p.Kill(t)
	alone(t, a, 1)
	boom := errors.New("told to")
	require.Equal(t, boom, m.Update(func(tx *prims.Tx) error {
		prims.Set(tx, &l.From, 5)
		before := m.LogState()
		m.RollBackStale(stale)
		require.Equal(t, before, m.LogState(), "the log of a living transaction")
		return boom
	}))
	require.Zero(t, l.From)
	requireIdle(t, a, m)
}

// TestUpdateThatHasUnlockedLosesItsLog: the function of an Update unlocks its Mutex, and the process recovers
// from the panic. Later the process holds the lock again, without a transaction, and dies. Nothing is undone,
// because others have changed the data since the Update.
func TestUpdateThatHasUnlockedLosesItsLog(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	lostDies(t, nameOf(a), "goes on after it has unlocked in an Update")
	requireLost(t, a, m, l, 9)
}

// TestCondWaitInUpdatePanics: a wait for a Cond within an Update panics, because it would unlock the Mutex and
// let others see an unfinished change.
func TestCondWaitInUpdatePanics(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	c, err := prims.OpenCond(a, "c", m, nil)
	require.NoError(t, err)
	require.PanicsWithValue(t, "shmsync: Cond.Wait in an Update of mutex m, which would unlock it", func() {
		m.Update(func(tx *prims.Tx) error {
			prims.Set(tx, &l.From, 5)
			c.Wait()
			return nil
		})
	})
	require.Zero(t, l.From)
	requireIdle(t, a, m)
	m.Lock() // a hold outside of an Update may wait
	require.ErrorIs(t, c.WaitContext(canceled(t)), context.Canceled)
	m.Unlock()
}

// TestCondWaitInUpdateOfRWMutexPanics is TestCondWaitInUpdatePanics for an RWMutex.
func TestCondWaitInUpdateOfRWMutexPanics(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenRWMutex(a, "m", &prims.RWMutexOptions{Policy: prims.PolicyRollback})
	require.NoError(t, err)
	c, err := prims.OpenCond(a, "c", m, nil)
	require.NoError(t, err)
	require.PanicsWithValue(t, "shmsync: Cond.Wait in an Update of rwmutex m, which would unlock it", func() {
		m.Update(func(tx *prims.Tx) error {
			c.Wait()
			return nil
		})
	})
	require.True(t, m.TryLock())
	require.ErrorIs(t, c.WaitContext(canceled(t)), context.Canceled)
	m.Unlock()
}

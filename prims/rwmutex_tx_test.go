//go:build linux

package prims_test

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func newRWRollback(t *testing.T, a *arena.Arena, log int) (*prims.RWMutex, *ledger) {
	t.Helper()
	m, err := openTxLock(a, true, log)
	require.NoError(t, err)
	l, err := arena.Value[ledger](a, "ledger")
	require.NoError(t, err)
	return m.(*prims.RWMutex), l
}

func TestRWMutexUpdate(t *testing.T) {
	for what, options := range map[string]*arena.Options{"plain": nil, "counted": {Counted: true}} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, options)
			m, l := newRWRollback(t, a, 1000)
			require.Equal(t, prims.PolicyRollback, m.Policy())
			require.NoError(t, m.Update(func(tx *prims.Tx) error {
				require.True(t, m.State().Held)
				require.False(t, m.TryRLock())
				prims.Set(tx, &l.From, -10)
				prims.Set(tx, &l.To, 10)
				return nil
			}))
			want := ledger{From: -10, To: 10}
			require.Equal(t, want, *l)
			requireIdle(t, a, m)

			own := errors.New("own")
			change := func(tx *prims.Tx) {
				prims.Save(tx, l)
				*l = ledger{From: 1, To: 2}
			}
			require.Equal(t, own, m.Update(func(tx *prims.Tx) error { change(tx); return own }))
			require.Equal(t, want, *l)
			requireIdle(t, a, m)
			require.PanicsWithValue(t, own, func() { m.Update(func(tx *prims.Tx) error { change(tx); panic(own) }) })
			require.Equal(t, want, *l)
			requireIdle(t, a, m)
			err := m.Update(func(tx *prims.Tx) error {
				change(tx)
				for {
					tx.Alloc(16, 8)
				}
			})
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			require.Equal(t, want, *l)
			requireIdle(t, a, m)

			m.RLock()
			require.ErrorIs(t, m.UpdateContext(canceled(t), func(*prims.Tx) error { return nil }), context.Canceled)
			m.RUnlock()
			requireIdle(t, a, m)
		})
	}
}

func TestRWMutexUpdateMistakes(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRWRollback(t, a, 1000)
	plain, err := prims.OpenRWMutex(a, "plain", nil)
	require.NoError(t, err)
	require.PanicsWithValue(t, "shmsync: Update of rwmutex plain, whose policy is report: only a lock that was made with PolicyRollback has an undo log",
		func() { plain.Update(func(*prims.Tx) error { return nil }) })
	require.Panics(t, func() { prims.OpenRWMutex(a, "x", &prims.RWMutexOptions{LogBytes: 64}) })
	_, err = prims.OpenRWMutex(a, "rw", &prims.RWMutexOptions{Policy: prims.PolicyRollback, LogBytes: 64})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "its undo log has 1024 bytes, asked for 64")
	_, err = prims.OpenRWMutex(a, "rw", &prims.RWMutexOptions{Policy: prims.PolicyRelease})
	require.ErrorContains(t, err, "its policy is rollback, asked for release")
	_, err = prims.OpenRWMutex(a, "plain", &prims.RWMutexOptions{Policy: prims.PolicyRollback})
	require.ErrorContains(t, err, "its policy is report, asked for rollback")
	at, err := prims.RWMutexAt(a, m.Offset())
	require.NoError(t, err)
	require.NoError(t, at.Update(func(tx *prims.Tx) error { prims.Set(tx, &l.From, 4); return nil }))
	requireIdle(t, a, m)
}

// TestRWMutexUpdateThatUnlocks: an Update panics if its function releases the write hold. The next Update finds
// the undo log still in use and fails with ErrCorrupt. After that the lock is not recoverable until a Recover.
func TestRWMutexUpdateThatUnlocks(t *testing.T) {
	for what, end := range map[string]struct{ give, after func(m *prims.RWMutex) }{
		"unlock":                  {(*prims.RWMutex).Unlock, func(*prims.RWMutex) {}},
		"downgrade":               {(*prims.RWMutex).Downgrade, (*prims.RWMutex).RUnlock},
		"downgrade to upgradable": {(*prims.RWMutex).DowngradeToUpgradable, (*prims.RWMutex).UnlockUpgradable},
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			m, l := newRWRollback(t, a, 0)
			require.PanicsWithValue(t, "shmsync: the function of an Update has unlocked rwmutex rw", func() {
				m.Update(func(tx *prims.Tx) error {
					prims.Set(tx, &l.From, 5)
					end.give(m)
					return nil
				})
			})
			end.after(m)
			require.ErrorIs(t, m.Update(func(*prims.Tx) error { return nil }), shmsync.ErrCorrupt)
			for _, err := range []error{m.LockContext(t.Context()), m.RLockContext(t.Context())} {
				require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
				require.ErrorIs(t, err, shmsync.ErrCorrupt)
			}
			require.False(t, m.TryLock() || m.TryRLock() || m.TryLockUpgradable())
			require.NoError(t, m.Recover(func() error { return nil }))
			requireIdle(t, a, m)
		})
	}
}

// lostDiesRW is lostDies for an RWMutex.
func lostDiesRW(t *testing.T, a *arena.Arena, step string, env ...string) {
	t.Helper()
	proctest.Start(t, "tx/lost", proctest.Params(lostStep{Arena: nameOf(a), Step: step, RW: true}), proctest.Env(env...),
		proctest.Dump(func() string { return words(a) })).WaitSignal(t, syscall.SIGKILL)
}

// TestRWMutexUpdateOfTheDeadIsUndone: a writer dies in an Update. The next call that wants the lock undoes the
// Update; if there is no such call, the reaper does. Recover then finds a healthy lock and does not run its
// repair.
func TestRWMutexUpdateOfTheDeadIsUndone(t *testing.T) {
	for what, get := range map[string]func(t *testing.T, m *prims.RWMutex){
		"Lock":           func(_ *testing.T, m *prims.RWMutex) { m.Lock(); m.Unlock() },
		"RLock":          func(_ *testing.T, m *prims.RWMutex) { m.RLock(); m.RUnlock() },
		"LockUpgradable": func(_ *testing.T, m *prims.RWMutex) { m.LockUpgradable(); m.Upgrade(); m.Unlock() },
		"Update":         func(t *testing.T, m *prims.RWMutex) { requireUsable(t, m) },
		"Recover": func(t *testing.T, m *prims.RWMutex) {
			require.NoError(t, m.Recover(func() error { return errors.New("there is nothing to repair") }))
		},
		"TryLock": func(t *testing.T, m *prims.RWMutex) {
			eventually(t, "TryLock", m.String, m.TryLock)
			m.Unlock()
		},
		"TryRLock": func(t *testing.T, m *prims.RWMutex) {
			eventually(t, "TryRLock", m.String, m.TryRLock)
			m.RUnlock()
		},
		"TryLockUpgradable": func(t *testing.T, m *prims.RWMutex) {
			eventually(t, "TryLockUpgradable", m.String, m.TryLockUpgradable)
			m.UnlockUpgradable()
		},
		"reaper": func(t *testing.T, m *prims.RWMutex) {
			eventually(t, "the lock is free", m.String, func() bool { return !m.State().Held })
		},
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			m, l := newRWRollback(t, a, 0)
			l.From, l.To = 3, 4
			lostDiesRW(t, a, "dies in an Update")
			get(t, m)
			require.Equal(t, ledger{From: 3, To: 4}, *l)
			requireIdle(t, a, m)
			alone(t, a, 1)
			require.EqualValues(t, 1, m.Rollbacks())
		})
	}
}

// TestRWMutexSleepingReaderSeesNoUpdateOfTheDead: a reader sleeps while a writer dies in an Update. The reader
// then gets the lock, and sees the data as it was before the Update.
func TestRWMutexSleepingReaderSeesNoUpdateOfTheDead(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRWRollback(t, a, 0)
	l.From = 3
	p := proctest.Start(t, "tx/lost", proctest.Params(lostStep{Arena: nameOf(a), Step: "waits in an Update", RW: true}),
		proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	saw := make(chan int64, 2)
	go func() { m.RLock(); saw <- l.From; m.RUnlock() }()
	go func() { m.Lock(); saw <- l.From; m.Unlock() }()
	eventually(t, "both wait", m.String, func() bool { return m.State().Waiting == 1 && m.State().Queued })
	p.Kill(t)
	require.EqualValues(t, 3, <-saw)
	require.EqualValues(t, 3, <-saw)
	requireIdle(t, a, m)
	alone(t, a, 1)
}

// TestRWMutexHoldWithoutAnUpdateIsReleased: a writer changes the data without an Update and dies. Its changes
// stay, and the lock becomes free.
func TestRWMutexHoldWithoutAnUpdateIsReleased(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRWRollback(t, a, 0)
	lostDiesRW(t, a, "changes")
	m.Lock()
	m.Unlock()
	require.EqualValues(t, 7, l.From)
	requireIdle(t, a, m)
	alone(t, a, 1)
	require.Zero(t, m.Rollbacks())
}

// This is TestRecoverThatDiesIsNotRolledBack for an RWMutex.
func TestRWMutexRecoverThatDiesIsNotRolledBack(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRWRollback(t, a, 0)
	lostDiesRW(t, a, "unlocks in an Update")
	require.ErrorIs(t, m.Update(func(*prims.Tx) error { return nil }), shmsync.ErrCorrupt)
	for range 2 {
		lostDiesRW(t, a, "repairs")
	}
	requireLost(t, a, m, l, 8)
}

// This is TestLogOfAnotherHolderIsNotUndone for an RWMutex.
func TestRWMutexLogOfAnotherHolderIsNotUndone(t *testing.T) {
	for step, from := range map[string]int64{"changes": 7, "goes on after it has unlocked in an Update": 9} {
		t.Run(step, func(t *testing.T) {
			a := newArena(t, nil)
			m, l := newRWRollback(t, a, 0)
			if step == "changes" {
				lostDiesRW(t, a, "unlocks in an Update")
			}
			lostDiesRW(t, a, step)
			requireLost(t, a, m, l, from)
		})
	}
}

// This is TestCloseWaitsForUpdate for an RWMutex.
func TestRWMutexCloseWaitsForUpdate(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRWRollback(t, a, 0)
	in, goOn, closed, updated := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		updated <- m.Update(func(tx *prims.Tx) error {
			close(in)
			<-goOn
			prims.Set(tx, &l.From, 5)
			return nil
		})
	}()
	<-in
	go func() {
		a.Close()
		close(closed)
	}()
	for !errors.Is(m.LockContext(canceled(t)), shmsync.ErrClosed) {
		runtime.Gosched() // wait until Close refuses new calls
	}
	select {
	case <-closed:
		t.Fatal("Close did not wait")
	default:
	}
	close(goOn)
	require.NoError(t, <-updated)
	<-closed
}

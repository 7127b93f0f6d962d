//go:build linux && crashpoint

package prims_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// rwGone is the ID of a participant that never existed, so it counts as gone.
const rwGone = arenakernel.ParticipantID(1<<11 | 9)

func init() {
	proctest.Register("rwmutex/holds", func(c *proctest.Child) {
		var p lostStep
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		m, err := prims.OpenRWMutex(a, "rw", nil)
		if err != nil {
			c.Fatal(err)
		}
		if p.Step == "leaves with a write hold" {
			m.Lock()
			crashpoint.ArmStop("mutex.owner_dead.marked", 1)
			a.Close()
			c.Ready()
			return
		}
		m.LockUpgradable()
		c.Ready()
		c.Await()
	})
}

// leftByTheGone returns an RWMutex with an undo log, and a function leave. The function leave puts the RWMutex into the
// state that a process leaves if it dies in an Update, after it has changed the field From from 3 to 5.
func leftByTheGone(t *testing.T, a *arena.Arena) (m *prims.RWMutex, l *ledger, leave func()) {
	m, l = newRWRollback(t, a, 0)
	l.From = 3
	var record []byte
	gaveUp := errors.New("gave up")
	require.Equal(t, gaveUp, m.Update(func(tx *prims.Tx) error {
		prims.Set(tx, &l.From, 5)
		record = m.LogRecords()
		return gaveUp
	}))
	return m, l, func() {
		l.From = 5
		m.LeaveLog(1<<61|uint64(rwGone)<<32|uint64(len(record)), record)
	}
}

// TestRWMutexReaderWaitsForNoUpgradableHold: a process has the writers' mutex, rolls back, and then keeps the
// mutex for an upgradable hold. A reader that finds the gate closed before the rollback does not wait for the
// mutex. It gets its hold beside the upgradable hold.
func TestRWMutexReaderWaitsForNoUpgradableHold(t *testing.T) {
	a := newArena(t, nil)
	m, l, leave := leftByTheGone(t, a)
	queued, goOn, upgradable, looked := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	end, ended, saw := make(chan struct{}), make(chan struct{}), make(chan int64, 1)
	t.Cleanup(crashpoint.Disarm)
	crashpoint.ArmFunc("rwmutex.lock.queued", 1, func() { leave(); close(queued); <-goOn })
	go func() {
		m.LockUpgradable()
		close(upgradable)
		<-end
		m.UnlockUpgradable()
		close(ended)
	}()
	await := func(what string, c <-chan struct{}) {
		t.Helper()
		eventually(t, what, func() string { return words(a) }, func() bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		})
	}
	await("the upgradable call has the mutex", queued)
	crashpoint.ArmFunc("rwmutex.rlock.woken", 3, func() { close(looked) })
	go func() { m.RLock(); saw <- l.From; m.RUnlock() }()
	await("the reader looks again and again", looked)
	close(goOn)
	await("the hold is upgradable", upgradable)
	eventually(t, "the reader is in", func() string { return words(a) }, func() bool { return len(saw) == 1 })
	require.EqualValues(t, 3, <-saw)
	close(end)
	await("it has ended", ended)
	requireIdle(t, a, m)
}

// TestRWMutexLeaveRollsBackBeforeTheMutexIsFree: a process that leaves the arena with a write hold rolls back
// before it frees the writers' mutex. So a writer that gets the mutex finds the gate open, and not closed by a
// process that is alive.
func TestRWMutexLeaveRollsBackBeforeTheMutexIsFree(t *testing.T) {
	a := newArena(t, nil)
	m, _ := newRWRollback(t, a, 0)
	p := proctest.Start(t, "rwmutex/holds", proctest.Params(lostStep{Arena: nameOf(a), Step: "leaves with a write hold"}),
		proctest.Dump(func() string { return words(a) }))
	p.AwaitStop(t)
	require.NoError(t, m.LockContext(t.Context()))
	m.Unlock()
	p.Cont(t)
	p.Await(t)
	p.WaitExit(t)
	requireIdle(t, a, m)
}

// TestRWMutexReaperRollsBackForAnotherWriter: process P dies in an Update. Process Q has the writers' mutex,
// and dies before it has rolled back for P. The reapers of P have found the mutex held, and do not try again.
// So the reaper of Q has to roll back.
func TestRWMutexReaperRollsBackForAnotherWriter(t *testing.T) {
	a := newArena(t, nil)
	m, l, leave := leftByTheGone(t, a)
	p := proctest.Start(t, "rwmutex/holds", proctest.Params(lostStep{Arena: nameOf(a)}), proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	leave()
	p.Kill(t)
	eventually(t, "the gate is open", func() string { return words(a) }, func() bool { return !m.State().Held })
	require.EqualValues(t, 3, l.From)
	alone(t, a, 1)
	requireIdle(t, a, m)
}

// TestRWMutexCallThatGivesUpRollsBack checks that a TryLock rolls back for a dead writer although the TryLock itself
// fails. While the TryLock has the writers' mutex, a reaper of the dead writer finds the mutex held, and gives up.
func TestRWMutexCallThatGivesUpRollsBack(t *testing.T) {
	a := newArena(t, nil)
	m, l, leave := leftByTheGone(t, a)
	m.RLock() // so that TryLock does not examine the gate
	t.Cleanup(crashpoint.Disarm)
	crashpoint.ArmFunc("rwmutex.lock.queued", 1, func() { leave(); m.ReapUpdate(rwGone) })
	require.False(t, m.TryLock())
	m.RUnlock()
	require.False(t, m.State().Held, "%s", words(a))
	require.EqualValues(t, 3, l.From)
	requireIdle(t, a, m)
}

// TestRWMutexOpenBesideAReaper checks a handle that is opened while a reaper of this process has the writers' mutex. In
// the words of the lock, that looks like an upgradable hold of this process, but the handle must not report such a
// hold.
func TestRWMutexOpenBesideAReaper(t *testing.T) {
	a := newArena(t, nil)
	m, _, leave := leftByTheGone(t, a)
	require.NoError(t, m.Close())
	t.Cleanup(crashpoint.Disarm)
	opened := false
	crashpoint.ArmFunc("rwmutex.rollback.opened", 1, func() {
		opened = true
		x, err := prims.OpenRWMutex(a, "rw", nil)
		require.NoError(t, err)
		require.Panics(t, x.UnlockUpgradable)
		require.False(t, x.TryLock())
		require.NoError(t, x.Close())
	})
	leave()
	m.ReapUpdate(rwGone)
	require.True(t, opened)
	m, _ = newRWRollback(t, a, 0)
	requireIdle(t, a, m)
	m.LockUpgradable() // a real upgradable hold, which the next handle must find
	require.NoError(t, m.Close())
	m, _ = newRWRollback(t, a, 0)
	m.UnlockUpgradable()
	requireIdle(t, a, m)
}

// TestRWMutexReaperBesideARewriter: a peer rewrites the gate whenever a reaper is about to change it. The
// reaper gives up after some tries, and goes on to reap other dead participants.
func TestRWMutexReaperBesideARewriter(t *testing.T) {
	a := newArena(t, nil)
	m, l, leave := leftByTheGone(t, a)
	var tries atomic.Int32
	var rewrite func()
	rewrite = func() {
		if tries.Add(1) > 1000 {
			runtime.Goexit() // the test has failed
		}
		m.FlipGate(rwGone)
		crashpoint.ArmFunc("arena.act.verified", 1, rewrite)
	}
	t.Cleanup(crashpoint.Disarm)
	leave()
	crashpoint.ArmFunc("arena.act.verified", 1, rewrite)
	m.ReapUpdate(rwGone)
	crashpoint.Disarm()
	require.Less(t, tries.Load(), int32(1000))
	require.EqualValues(t, 5, l.From)
	m.Lock()
	require.EqualValues(t, 3, l.From)
	m.Unlock()
	requireIdle(t, a, m)
}

// TestRWMutexReaderThatGivesUpARollbackRollsBack checks that a TryRLock rolls back in place of a reaper. The TryRLock
// has taken the writers' mutex to roll back, has found a corrupt log, and is about to release the mutex. At this moment
// a writer dies in another Update, and its reaper gives up because the mutex is held.
func TestRWMutexReaderThatGivesUpARollbackRollsBack(t *testing.T) {
	a := newArena(t, nil)
	m, l, leave := leftByTheGone(t, a)
	t.Cleanup(crashpoint.Disarm)
	m.LeaveLog(1<<61|uint64(rwGone)<<32|1, nil) // a log that no correct process leaves
	came := false
	crashpoint.ArmFunc("mutex.unlock.before_release", 1, func() {
		came = true
		leave()
		m.ReapUpdate(rwGone)
	})
	require.False(t, m.TryRLock())
	require.True(t, came)
	require.False(t, m.State().Held, "%s", words(a))
	require.EqualValues(t, 3, l.From)
	requireIdle(t, a, m)
}

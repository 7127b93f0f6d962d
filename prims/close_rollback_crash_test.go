//go:build linux && crashpoint

package prims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/prims"
)

// rollsBack has functions that make a call that does not wait for a lock and may roll back. Before or during this call,
// they call leave, which makes the holder of the lock look dead with an unfinished transaction.
var rollsBack = map[string]struct {
	rw   bool
	call func(m txLock, leave func())
}{
	"mutex trylock": {false, func(m txLock, leave func()) {
		leave()
		m.(*prims.Mutex).TryLock()
	}},
	"rwmutex trylock": {true, func(m txLock, leave func()) {
		leave()
		m.(*prims.RWMutex).TryLock()
	}},
	"rwmutex tryrlock": {true, func(m txLock, leave func()) {
		leave()
		m.(*prims.RWMutex).TryRLock()
	}},
	"rwmutex trylockupgradable": {true, func(m txLock, leave func()) {
		leave()
		m.(*prims.RWMutex).TryLockUpgradable()
	}},
	"rwmutex trylock that gives up": {true, func(m txLock, leave func()) {
		x := m.(*prims.RWMutex)
		x.RLock() // a reader keeps TryLock from examining the gate
		crashpoint.ArmFunc("rwmutex.lock.queued", 1, func() {
			leave()
			x.ReapUpdate(rwGone) // TryLock holds the writers' mutex, so this reaper gives up
			x.RUnlock()
		})
		x.TryLock()
	}},
}

// TestCloseOfTheArenaWaitsForARollback checks that Close of the arena, which rolls back for a dead holder, waits for
// a call of another goroutine that is rolling back, too. Otherwise a peer could get the lock after the rollback of
// Close, and the call would copy old bytes over what the peer has committed.
func TestCloseOfTheArenaWaitsForARollback(t *testing.T) {
	for name, c := range rollsBack {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			closer, peer := w.Join("closer"), w.Join("peer")
			m, _, leave := unfinishedIn(t, closer, c.rw)
			in, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan any, 1)
			t.Cleanup(crashpoint.Disarm)
			crashpoint.ArmFunc("tx.undo.range", 1, func() { close(in); <-goOn })
			go func() {
				defer func() { ended <- recover() }()
				c.call(m, leave)
			}()
			<-in
			rolledBack, leaves := make(chan struct{}), make(chan struct{})
			crashpoint.ArmFunc("arena.close.repaired", 1, func() { close(rolledBack); <-leaves })
			closed := closing(t, closer)
			committed := false
			select {
			case <-rolledBack:
				t.Error("Close has rolled back while a call rolled back")
				theirs, l, _ := txLockIn(t, peer, c.rw)
				require.NoError(t, theirs.Update(func(tx *prims.Tx) error { prims.Set(tx, &l.From, 100); return nil }))
				committed = true
			case <-after(100 * time.Millisecond):
			}
			close(goOn)
			require.Nil(t, <-ended)
			close(leaves)
			require.NoError(t, <-closed)
			theirs, l, _ := txLockIn(t, peer, c.rw)
			if committed {
				require.EqualValues(t, 100, l.From, "a committed Update is lost")
			} else {
				require.EqualValues(t, 3, l.From)
				require.EqualValues(t, 4, l.To)
			}
			switch m := theirs.(type) { // the lock must be idle, even if Close had to release the hold of the call
			case *prims.Mutex:
				requireIdle(t, peer, m)
			case *prims.RWMutex:
				requireIdle(t, peer, m)
			}
		})
	}
}

func txLockIn(t *testing.T, a *arena.Arena, rw bool) (m txLock, l *ledger, leave func(state uint64, records []byte)) {
	t.Helper()
	if rw {
		m, l := newRWRollback(t, a, 0)
		return m, l, m.LeaveLog
	}
	x, l := newRollback(t, a, 0)
	return x, l, x.LeaveLog
}

// unfinishedIn returns a lock with an undo log, and a function leave. leave makes the lock look as if its holder had
// died in an Update, after it had changed both fields of the ledger.
func unfinishedIn(t *testing.T, a *arena.Arena, rw bool) (m txLock, l *ledger, leave func()) {
	m, l, left := txLockIn(t, a, rw)
	l.From, l.To = 3, 4
	var records []byte
	gaveUp := errors.New("gave up")
	require.Equal(t, gaveUp, m.Update(func(tx *prims.Tx) error {
		prims.Set(tx, &l.From, 5)
		prims.Set(tx, &l.To, 6)
		records = m.(interface{ LogRecords() []byte }).LogRecords()
		return gaveUp
	}))
	return m, l, func() {
		l.From, l.To = 5, 6
		left(1<<61|uint64(rwGone)<<32|uint64(len(records)), records)
	}
}

// TestRWMutexLockBesideTheCloseOfTheArena checks that Lock returns ErrClosed and does not panic if its process closes
// the arena meanwhile. A Lock that finds the RWMutex free does not count as a waiting call, so Close does not wait
// for it. Close opens the gate that Lock has closed, and releases the writers' mutex.
func TestRWMutexLockBesideTheCloseOfTheArena(t *testing.T) {
	w := arenatest.New(t, nil)
	closer, peer := w.Join("closer"), w.Join("peer")
	m, err := prims.OpenRWMutex(closer, "x", nil)
	require.NoError(t, err)
	t.Cleanup(crashpoint.Disarm)
	crashpoint.ArmFunc("rwmutex.lock.closed", 1, func() { require.NoError(t, closer.Close()) })
	require.ErrorIs(t, m.LockContext(context.Background()), shmsync.ErrClosed)
	x, err := prims.OpenRWMutex(peer, "x", nil)
	require.NoError(t, err)
	require.True(t, x.TryLock(), "%v", x)
	x.Unlock()
}

// TestCloseBesideARollbackOfACheck checks that a handle can be closed while a periodic check finds the holder of the
// Mutex dead and perhaps rolls back. The check holds a lock of the handle, and the end of the opening takes that lock,
// too. So the check must not be the call that ends the opening: the check would wait for itself, and each later Close
// would wait for the check.
func TestCloseBesideARollbackOfACheck(t *testing.T) {
	a := newArena(t, nil)
	x, _, leave := unfinishedIn(t, a, false)
	m := x.(*prims.Mutex)
	name := m.Object().Name
	m.Lock()
	t.Cleanup(crashpoint.Disarm)
	woken, leaves := make(chan struct{}), make(chan struct{})
	crashpoint.ArmFunc("mutex.lock.woken", 1, func() { close(woken); <-leaves })
	in, goOn := make(chan struct{}), make(chan struct{})
	crashpoint.ArmFunc("tx.undo.range", 1, func() { close(in); <-goOn })
	waited, closed, deleted := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { waited <- m.LockContext(context.Background()) }()
	waiting(t, a, name, 1)
	asleep(t, a, name)
	go func() { closed <- m.Close() }()
	<-woken // Close wakes the LockContext, and then waits for it
	leave()
	select {
	case <-in: // the check rolls back
	case <-after(5 * park.CheckEvery()): // the check leaves the rollback to other processes
	}
	close(leaves)
	require.ErrorIs(t, <-waited, shmsync.ErrClosed)
	require.NoError(t, <-closed)
	close(goOn)
	go func() { deleted <- a.Delete(name) }()
	select {
	case err := <-deleted:
		require.NoError(t, err)
	case <-after(timeout()):
		t.Fatal("the end of the opening waits for the check, and the check for the end")
	}
}

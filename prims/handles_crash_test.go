//go:build linux && crashpoint

package prims_test

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// closesAtOnce closes m in another goroutine, which sends the result of Close. closesAtOnce gives this goroutine time
// to get as far as it can, and then reports whether Close has returned.
func closesAtOnce(m *prims.RWMutex, closed chan error) bool {
	go func() { closed <- m.Close() }()
	for tries := 0; tries < 10000 && len(closed) == 0; tries++ {
		runtime.Gosched()
	}
	return len(closed) != 0
}

// TestCloseWhileAnUpgradeGivesUp: an Upgrade gives up while the handle is being closed. Close waits
// until the gate is open again, so that the next handle of the process finds the upgradable hold.
func TestCloseWhileAnUpgradeGivesUp(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	m.RLock()
	m.LockUpgradable()
	closed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var next *prims.RWMutex
	before := crashpoint.HitCount("rwmutex.lock.leaving")
	crashpoint.ArmFunc("rwmutex.lock.announced", 1, cancel)
	crashpoint.ArmFunc("rwmutex.lock.leaving", 1, func() {
		if closesAtOnce(m, closed) {
			next = ofRW(t, a)
		}
	})
	defer crashpoint.Disarm()
	err := m.UpgradeContext(ctx)
	require.Error(t, err)
	require.NotErrorIs(t, err, shmsync.ErrCorrupt)
	require.NoError(t, <-closed)
	require.Equal(t, before+1, crashpoint.HitCount("rwmutex.lock.leaving"))
	if next == nil {
		next = ofRW(t, a)
	}
	next.UnlockUpgradable()
	next.RUnlock()
	require.True(t, next.TryLock())
	next.Unlock()
	sound(t, a)
}

// waitlessKinds are the kinds of handles whose waits put no wait node into a queue.
var waitlessKinds = map[string]bool{
	"mutex": true, "checked mutex": true, "cohort mutex": true, "spin lock": true, "signal waker": true,
	"rwmutex, written": true, "rwmutex, read": true, "reader/writer spin lock, written": true, "reader/writer spin lock, read": true,
	"futex": true, "futex, with others": true, "synchronized": true, "waitgroup": true, "latch": true, "once": true,
	"queue, empty": true, "queue, full": true, "queue, leased": true,
}

// TestCloseWhileATryUpgradeFails: a TryUpgrade finds a reader while the handle is being closed. Close waits until
// the gate is open again, so that the next handle of the process finds the upgradable hold.
func TestCloseWhileATryUpgradeFails(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	m.LockUpgradable()
	closed, read := make(chan error, 1), make(chan error, 1)
	tried, goOn := make(chan bool), make(chan bool)
	var next *prims.RWMutex
	crashpoint.ArmFunc("rwmutex.lock.closed", 1, func() {
		reader := m
		if closesAtOnce(m, closed) {
			next = ofRW(t, a)
			reader = next
		}
		crashpoint.ArmFunc("rwmutex.rlock.tried", 1, func() { close(tried); <-goOn })
		go func() { read <- reader.RLockContext(t.Context()) }()
		<-tried // the reader has counted itself
	})
	defer crashpoint.Disarm()
	require.False(t, m.TryUpgrade())
	require.NoError(t, <-closed)
	if next == nil {
		next = ofRW(t, a)
	}
	close(goOn)
	if <-read == nil {
		next.RUnlock()
	}
	next.UnlockUpgradable()
	require.True(t, next.TryLock())
	next.Unlock()
}

// TestCloseWaitsForACallThatQueuesItsWait: a handle is closed while a call queues its wait. Close
// returns only when the call has left, because until then the call needs the words.
func TestCloseWaitsForACallThatQueuesItsWait(t *testing.T) {
	for kind, open := range handleKinds {
		point := "record.wait.prepared"
		switch {
		case kind == "future", kind == "event", kind == "barrier":
			point = "eventcount.wait.announced"
		case kind == "auto-reset event":
			point = "event.wait.announced"
		case strings.HasPrefix(kind, "sequencer"):
			point = "sequencer.wait.announced"
		case waitlessKinds[kind]:
			continue
		}
		t.Run(kind, func(t *testing.T) {
			closesWhileQueuing(t, open, point)
		})
	}
}

// closesWhileQueuing closes a handle while a call through it, which queues a wait, is at a crash point.
func closesWhileQueuing(t *testing.T, open func(*arena.Arena) (*opened, error), point string) {
	t.Helper()
	a := newArena(t, nil)
	holder, err := open(a)
	require.NoError(t, err)
	mine, err := open(a)
	require.NoError(t, err)
	holder.Block()
	closed := make(chan error, 1)
	early := false
	before := crashpoint.HitCount(point)
	crashpoint.ArmFunc(point, 1, func() {
		go func() { closed <- mine.Close() }()
		// The other goroutine runs Close as far as it can get. If Close does not wait for
		// the call, it returns.
		for tries := 0; tries < 2000 && len(closed) == 0; tries++ {
			runtime.Gosched()
		}
		early = len(closed) != 0
	})
	defer crashpoint.Disarm()
	ctx, cancel := context.WithTimeout(t.Context(), timeout()) // for a call that does not reach the crash point
	defer cancel()
	require.ErrorIs(t, mine.Wait(ctx), shmsync.ErrClosed, words(a))
	require.NoError(t, <-closed)
	require.False(t, early, "Close has returned while the call used the words")
	require.Equal(t, before+1, crashpoint.HitCount(point))
	holder.Free()
	sound(t, a)
}

// TestCloseOfAMultiLockWaitsForALockOfOneKey: a handle on a MultiLock is closed during a Lock of one key. The waits in
// handleKinds do not test this: they call LockAllContext with two keys, and Close waits for LockAllContext anyway.
func TestCloseOfAMultiLockWaitsForALockOfOneKey(t *testing.T) {
	open := func(a *arena.Arena) (*opened, error) {
		m, err := prims.OpenMultiLock(a, "x", nil)
		if err != nil {
			return nil, err
		}
		var h prims.Hold
		return &opened{Close: m.Close, Block: func() { h = m.Lock(7) }, Free: func() { h.Unlock() }, Wait: func(ctx context.Context) error {
			h, err := m.LockContext(ctx, 7)
			if err == nil {
				h.Unlock()
			}
			return err
		}}, nil
	}
	closesWhileQueuing(t, open, "record.wait.prepared")
	for _, point := range []string{"record.tell.resolved", "record.wake.before", "multilock.unlock.committed"} {
		for tries := 0; !closesDuringCall(t, open, point); tries++ {
			require.Less(t, tries, 1000, "the call never comes to the point")
		}
	}
}

// TestCloseWaitsForACallThatEndsWaits: a handle is closed while a call ends waits, or still
// has to wake waiters. Close returns only when the call no longer needs the words.
func TestCloseWaitsForACallThatEndsWaits(t *testing.T) {
	for kind, open := range handleKinds {
		switch {
		case kind == "futex", kind == "futex, with others":
		case waitlessKinds[kind], kind == "once": // the function of a Once outlives the handle
			continue
		}
		points := []string{"record.tell.resolved", "record.wake.before"}
		switch kind {
		case "futex", "futex, with others":
			points = []string{"futex.post.before_wake"}
		case "future":
			points = []string{"future.set.decided", "future.end.before_wake"}
		case "event":
			points = []string{"event.turn.before_wake"}
		case "auto-reset event":
			points = []string{"event.set.before_wake"}
		case "sequencer", "sequencer, with others", "sequencer, pending":
			points = []string{"sequencer.count.before_wake"}
		case "barrier":
			points = []string{"barrier.arrive.counted", "barrier.tell.before_wake"}
		}
		for _, point := range points {
			t.Run(kind+"/"+point, func(t *testing.T) {
				// A waiter may have returned because of its own periodic check. It then needs no
				// wake, and the test tries again.
				for tries := 0; !closesDuringCall(t, open, point); tries++ {
					require.Less(t, tries, 1000, "the call never comes to the point")
				}
			})
		}
	}
}

// closesDuringCall closes a handle while a call through it, which ends a wait, is at a crash point.
// It reports whether the call reached that point.
func closesDuringCall(t *testing.T, open func(*arena.Arena) (*opened, error), point string) (came bool) {
	a := newArena(t, nil)
	mine, err := open(a)
	require.NoError(t, err)
	theirs, err := open(a)
	require.NoError(t, err)
	mine.Block()
	granted := make(chan error, 1)
	go func() { granted <- theirs.Wait(t.Context()) }()
	waiting(t, a, "x", 1)
	asleep(t, a, "x")
	closed := make(chan error, 1)
	early := armClose(point, mine.Close, closed)
	defer crashpoint.Disarm()
	before := crashpoint.HitCount(point)
	mine.Free()
	if came = crashpoint.HitCount(point) != before; came {
		require.NoError(t, <-closed)
	}
	require.False(t, *early, "Close has returned while the call used the words")
	require.NoError(t, <-granted)
	sound(t, a)
	require.NoError(t, a.Close())
	return came
}

// armClose makes the next call that reaches a crash point wait there while another goroutine closes
// a handle. *early becomes true if Close returned before the call went on.
func armClose(point string, closeHandle func() error, closed chan<- error) (early *bool) {
	early = new(bool)
	crashpoint.ArmFunc(point, 1, func() {
		done := make(chan struct{})
		go func() {
			closed <- closeHandle()
			close(done)
		}()
		// The other goroutine runs Close as far as it can get. If Close does not wait for the call,
		// it returns.
		for range 2000 {
			select {
			case <-done:
				*early = true
				return
			default:
				runtime.Gosched()
			}
		}
	})
	return early
}

// TestCloseOfTheArenaByTheWaiterThatAnUnlockLetsGo: an Unlock ends a wait, and the waiter closes the arena while the Unlock
// is still running. The rest of the Unlock finds that its handle is closed, and does not fault.
func TestCloseOfTheArenaByTheWaiterThatAnUnlockLetsGo(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenMutex(a, "x", &prims.MutexOptions{Spin: -1})
	require.NoError(t, err)
	m.Lock()
	waited := make(chan error, 1)
	before := crashpoint.HitCount("mutex.lock.announced")
	go func() { waited <- m.LockContext(t.Context()) }()
	eventually(t, "the waiter announces itself", m.String, func() bool { return crashpoint.HitCount("mutex.lock.announced") > before })
	closed := make(chan error, 1)
	crashpoint.ArmFunc("mutex.unlock.before_wake", 1, func() { closed <- a.Close() })
	defer crashpoint.Disarm()
	unlocked := make(chan any, 1)
	go func() {
		defer func() { unlocked <- recover() }()
		debug.SetPanicOnFault(true)
		m.Unlock()
	}()
	require.Nil(t, <-unlocked)
	require.NoError(t, <-closed)
	err = <-waited
	require.True(t, err == nil || errors.Is(err, shmsync.ErrClosed), err)
}

//go:build linux && crashpoint

package prims_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// lateObject is an object, and a call on it that lets others go on.
type lateObject struct {
	body  arena.Offset
	size  uint64
	wakes []arena.Offset // the wake words of the object, relative to the body
	call  func()
	close func() error
}

// lateCalls has the calls that first take effect and then wake waiters. The crash point of each call lies between its
// effect and its wake. Each object has the name "x".
var lateCalls = map[string]struct {
	point string
	open  func(t *testing.T, a *arena.Arena) lateObject
}{
	"mutex/Unlock": {"mutex.unlock.before_wake", func(t *testing.T, a *arena.Arena) lateObject {
		return lateMutex(t, a, nil, 0)
	}},
	"mutex/Unlock, not biased": {"mutex.unlock.before_wake", func(t *testing.T, a *arena.Arena) lateObject {
		return lateMutex(t, a, nil, 1)
	}},
	"mutex/Unlock, checked": {"mutex.unlock.before_wake", func(t *testing.T, a *arena.Arena) lateObject {
		return lateMutex(t, a, &prims.MutexOptions{Checked: true}, 0)
	}},
	"cohort mutex/Unlock": {"mutex.unlock.before_wake", func(t *testing.T, a *arena.Arena) lateObject {
		m, err := prims.OpenCohortMutex(a, "x", nil)
		require.NoError(t, err)
		m.Lock()
		return lateObject{m.Object().Body, m.Object().Size, []arena.Offset{64}, m.Unlock, m.Close}
	}},
	"synchronized/Store": {"mutex.unlock.before_wake", func(t *testing.T, a *arena.Arena) lateObject {
		s, err := prims.OpenSynchronized(a, "x", uint64(0), nil)
		require.NoError(t, err)
		return lateObject{s.Object().Body, s.Object().Size, []arena.Offset{64}, func() { s.Store(1) }, s.Close}
	}},
	"rwmutex/Unlock": {"mutex.unlock.before_wake", lateRWMutex((*prims.RWMutex).Lock, (*prims.RWMutex).Unlock)},
	"rwmutex/UnlockUpgradable": {"mutex.unlock.before_wake",
		lateRWMutex((*prims.RWMutex).LockUpgradable, (*prims.RWMutex).UnlockUpgradable)},
	"rwmutex/RUnlock":    {"rwmutex.runlock.left", lateRWMutex((*prims.RWMutex).RLock, (*prims.RWMutex).RUnlock)},
	"rwspinlock/Unlock":  {"spinlock.unlock.before_wake", lateRWSpin((*prims.RWSpinLock).Lock, (*prims.RWSpinLock).Unlock)},
	"rwspinlock/RUnlock": {"rwspinlock.runlock.before_wake", lateRWSpin((*prims.RWSpinLock).RLock, (*prims.RWSpinLock).RUnlock)},
	"rwspinlock/UnlockUpgradable": {"spinlock.unlock.before_wake",
		lateRWSpin((*prims.RWSpinLock).LockUpgradable, (*prims.RWSpinLock).UnlockUpgradable)},
	"spin lock/Unlock": {"spinlock.unlock.before_wake", func(t *testing.T, a *arena.Arena) lateObject {
		l, err := prims.OpenSpinLock(a, "x", nil)
		require.NoError(t, err)
		l.Lock()
		return lateObject{l.Object().Body, l.Object().Size, []arena.Offset{64}, l.Unlock, l.Close}
	}},
	"signal waker/Release": {"signal.release.permitted", func(t *testing.T, a *arena.Arena) lateObject {
		w, err := prims.OpenSignalWaker(a, "x", &prims.SignalWakerOptions{Signals: 1})
		require.NoError(t, err)
		return lateObject{w.Object().Body, w.Object().Size, []arena.Offset{384}, func() { w.Release(3) }, w.Close}
	}},
}

// lateMutex makes a Mutex that this process holds. Before that, it locks and unlocks the Mutex while a waiter is
// announced; the parameter warm says how often. After such an Unlock, holds are not biased.
func lateMutex(t *testing.T, a *arena.Arena, opts *prims.MutexOptions, warm int) lateObject {
	m, err := prims.OpenMutex(a, "x", opts)
	require.NoError(t, err)
	for range warm {
		m.Lock()
		arena.At[atomic.Uint32](a, m.Object().Body+64).Store(1)
		m.Unlock()
	}
	m.Lock()
	return lateObject{m.Object().Body, m.Object().Size, []arena.Offset{64}, m.Unlock, m.Close}
}

func lateRWMutex(lock, unlock func(*prims.RWMutex)) func(*testing.T, *arena.Arena) lateObject {
	return func(t *testing.T, a *arena.Arena) lateObject {
		m, err := prims.OpenRWMutex(a, "x", nil)
		require.NoError(t, err)
		lock(m)
		return lateObject{m.Object().Body, m.Object().Size, []arena.Offset{64}, func() { unlock(m) }, m.Close}
	}
}

func lateRWSpin(lock, unlock func(*prims.RWSpinLock)) func(*testing.T, *arena.Arena) lateObject {
	return func(t *testing.T, a *arena.Arena) lateObject {
		l, err := prims.OpenRWSpinLock(a, "x", nil)
		require.NoError(t, err)
		lock(l)
		return lateObject{l.Object().Body, l.Object().Size, []arena.Offset{4, 64, 68}, func() { unlock(l) }, l.Close}
	}
}

// TestLateCallChangesNoOtherObject: a call has taken effect but has not returned yet. Then the last handle is closed,
// the object is deleted, and another object gets the memory. The rest of the call does not change the new object.
func TestLateCallChangesNoOtherObject(t *testing.T) {
	for name, c := range lateCalls {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			o := c.open(t, a)
			for _, wake := range o.wakes {
				arena.At[atomic.Uint32](a, o.body+wake).Store(1)
			}
			var words []*atomic.Uint64
			crashpoint.ArmFunc(c.point, 1, func() {
				require.NoError(t, o.close())
				require.NoError(t, a.Delete("x"))
				words = fillNext(t, a, c.open(t, a), o.body)
			})
			defer crashpoint.Disarm()
			o.call()
			require.NotEmpty(t, words, "the call has not come to the point")
			for i, w := range words {
				require.Equal(t, uint64(lateFill), w.Swap(0), "word %d", i)
			}
		})
	}
}

// lateFill is the value of each word of the next object. Each bit that a late call may test is set in lateFill.
const lateFill = 0x0101010101010101

// fillNext fills the body of the object next, which must lie at the place of a deleted object, with lateFill.
func fillNext(t *testing.T, a *arena.Arena, next lateObject, body arena.Offset) (words []*atomic.Uint64) {
	t.Helper()
	require.Equal(t, body, next.body)
	for at := uint64(0); at+8 <= next.size; at += 8 {
		w := arena.At[atomic.Uint64](a, body+arena.Offset(at))
		w.Store(lateFill)
		words = append(words, w)
	}
	return words
}

// TestCloseWaitsForACallOfSeveralSteps: a handle is closed while a call is between two steps, the first of which lets others
// go on. Close returns only after the last step.
func TestCloseWaitsForACallOfSeveralSteps(t *testing.T) {
	signals := func(prepare, call func(w *prims.SignalWaker)) func(*testing.T, *arena.Arena) (func(), func() error) {
		return func(t *testing.T, a *arena.Arena) (func(), func() error) {
			w, err := prims.OpenSignalWaker(a, "x", &prims.SignalWakerOptions{Signals: 1})
			require.NoError(t, err)
			prepare(w)
			return func() { call(w) }, w.Close
		}
	}
	hands := func(warm int) func(*testing.T, *arena.Arena) (func(), func() error) {
		return func(t *testing.T, a *arena.Arena) (func(), func() error) {
			o := lateMutex(t, a, nil, warm)
			arena.At[atomic.Uint32](a, o.body+64).Store(1)
			arena.At[atomic.Uint32](a, o.body+68).Store(uint32((*arenakernel.Arena)(a).Self())) // this process asks for the lock
			return o.call, o.close
		}
	}
	var g prims.Gate
	task := 0
	for name, c := range map[string]struct {
		point string
		open  func(*testing.T, *arena.Arena) (call func(), close func() error)
	}{
		"Unlock that hands on":        {"mutex.unlock.reserved", hands(0)},
		"slow Unlock that hands on":   {"mutex.unlock.reserved", hands(1)},
		"Schedule":                    {"signal.schedule.gated", signals(func(*prims.SignalWaker) {}, func(w *prims.SignalWaker) { w.Gate(1).Schedule() })},
		"FinishAndSchedule":           {"signal.finish.released", signals(func(w *prims.SignalWaker) { w.Gate(1).Schedule(); g, _ = w.Next(0) }, func(*prims.SignalWaker) { g.FinishAndSchedule() })},
		"Finish of a scheduled queue": {"signal.finish.released", signals(func(w *prims.SignalWaker) { w.Gate(1).Schedule(); g, _ = w.Next(0); w.Gate(1).Schedule() }, func(*prims.SignalWaker) { g.Finish() })},
		"MarkYield":                   {"signal.status.marked", signals(func(*prims.SignalWaker) {}, func(w *prims.SignalWaker) { w.MarkYield() })},
		"MarkActive":                  {"signal.mark.marked", signals(func(*prims.SignalWaker) {}, func(w *prims.SignalWaker) { w.MarkActive(0) })},
		"MarkPartitionLeafActive":     {"signal.partition.marked", signals(func(*prims.SignalWaker) {}, func(w *prims.SignalWaker) { w.MarkPartitionLeafActive(0) })},
		"LockContext of an RWSpinLock that gives up": {"rwspinlock.drain.given_up", func(t *testing.T, a *arena.Arena) (func(), func() error) {
			l, err := prims.OpenRWSpinLock(a, "x", nil)
			require.NoError(t, err)
			l.RLock()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return func() { require.ErrorIs(t, l.LockContext(ctx), context.Canceled) }, l.Close
		}},
		"ReleaseTask": {"signal.unreserve.freed", signals(func(w *prims.SignalWaker) { task, _ = w.ReserveTask() }, func(w *prims.SignalWaker) { w.ReleaseTask(task) })},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			call, closeHandle := c.open(t, a)
			closed := make(chan error, 1)
			early, before := armClose(c.point, closeHandle, closed), crashpoint.HitCount(c.point)
			defer crashpoint.Disarm()
			call()
			require.NotEqual(t, before, crashpoint.HitCount(c.point), "the call has not come to the point")
			require.NoError(t, <-closed)
			require.False(t, *early, "Close has returned while the call used the words")
		})
	}
}

// lateWakes has the kinds of handles whose calls leave wakes to Close. The value for each kind is a crash point that
// the function Free passes after its effect and before its wake.
var lateWakes = map[string]string{
	"mutex": "mutex.unlock.before_wake", "checked mutex": "mutex.unlock.before_wake", "cohort mutex": "mutex.unlock.before_wake",
	"spin lock": "spinlock.unlock.before_wake", "reader/writer spin lock, written": "spinlock.unlock.before_wake",
	"reader/writer spin lock, read": "rwspinlock.runlock.before_wake", "rwmutex, read": "rwmutex.runlock.left",
	"signal waker": "signal.release.permitted",
}

// lateWaiter starts a process that waits for the object of a kind, without periodic checks, and waits until it
// sleeps. The returned function requires that the wait ends.
func lateWaiter(t *testing.T, a *arena.Arena, kind string) (requireWoken func()) {
	t.Helper()
	p := proctest.Start(t, "late/wait", proctest.Params([2]string{nameOf(a), kind}), proctest.Env("SHMSYNC_CHECK_EVERY=1h"),
		proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	waiting(t, a, "x", 1)
	asleep(t, a, "x")
	return func() {
		t.Helper()
		var failure string
		p.Recv(t, &failure)
		require.Empty(t, failure)
	}
}

// TestCloseMakesTheWakesOfLateCalls: a handle is closed while a call on it has taken effect and has not made its wake. A
// waiter of another process is woken in time.
func TestCloseMakesTheWakesOfLateCalls(t *testing.T) {
	for kind, point := range lateWakes {
		t.Run(kind, func(t *testing.T) {
			a := newArena(t, nil)
			mine, err := handleKinds[kind](a)
			require.NoError(t, err)
			mine.Block()
			requireWoken := lateWaiter(t, a, kind)
			came := false
			crashpoint.ArmFunc(point, 1, func() {
				came = true
				require.NoError(t, mine.Close())
			})
			defer crashpoint.Disarm()
			mine.Free()
			require.True(t, came)
			requireWoken()
			sound(t, a)
		})
	}
}

// TestCloseOfTheArenaMakesWakesWhileAFunctionRuns: the arena is closed while a call has taken effect and has not made its
// wake. A waiter of another process is woken although Close still waits for a function of another object.
func TestCloseOfTheArenaMakesWakesWhileAFunctionRuns(t *testing.T) {
	for kind, point := range lateWakes {
		t.Run(kind, func(t *testing.T) {
			a := newArena(t, nil)
			mine, err := handleKinds[kind](a)
			require.NoError(t, err)
			mine.Block()
			o, err := prims.OpenOnce(a, "once", nil)
			require.NoError(t, err)
			f, err := prims.OpenFutex(a, "futex", nil)
			require.NoError(t, err)
			in, goOn, refused := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			returns := sync.OnceFunc(func() { close(goOn) })
			defer returns()
			go o.Do(func() { close(in); <-goOn })
			<-in
			go func() { refused <- f.WaitContext(context.Background(), 1) }()
			waiting(t, a, "futex", 1)
			requireWoken := lateWaiter(t, a, kind)
			var closed chan error
			crashpoint.ArmFunc(point, 1, func() {
				closed = closing(t, a)
				require.ErrorIs(t, <-refused, shmsync.ErrClosed) // from now on, all handles refuse calls
			})
			defer crashpoint.Disarm()
			mine.Free()
			require.NotNil(t, closed)
			requireWoken()
			returns()
			require.NoError(t, <-closed)
		})
	}
}

func init() {
	proctest.Register("late/wait", func(c *proctest.Child) {
		var p [2]string // the arena, and the kind of the handle
		c.Params(&p)
		a, err := arena.Attach(p[0], nil)
		if err != nil {
			c.Fatal(err)
		}
		o, err := handleKinds[p[1]](a)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		failure := ""
		if err := o.Wait(context.Background()); err != nil {
			failure = err.Error()
		}
		c.Say(failure)
	})
}

// triesOfADead has the calls that do not wait and that may take a lock from a dead process. A call reaches its crash
// point after it has taken the lock from the dead process.
var triesOfADead = map[string]struct {
	point string
	open  func(a *arena.Arena) (x recoverable, try func() bool, close func() error, err error)
}{
	"mutex": {"mutex.owner_dead.marked", func(a *arena.Arena) (recoverable, func() bool, func() error, error) {
		x, err := openRepairedMutex(a, nil)
		return x, x.TryLock, x.Close, err
	}},
	"rwmutex": {"rwmutex.owner_dead.marked", func(a *arena.Arena) (recoverable, func() bool, func() error, error) {
		x, err := openRepairedRWMutex(a, nil)
		return x, x.TryRLock, x.Close, err
	}},
	"spin lock": {"spinlock.owner_dead.marked", func(a *arena.Arena) (recoverable, func() bool, func() error, error) {
		x, err := openRepairedSpin(a, nil)
		return x, x.TryLock, x.Close, err
	}},
	"reader/writer spin lock": {"spinlock.owner_dead.marked", func(a *arena.Arena) (recoverable, func() bool, func() error, error) {
		x, err := openRepairedRWSpin(a, nil)
		return x, x.TryRLock, x.Close, err
	}},
}

// TestCloseWaitsForATryThatFindsADeath: a call that does not wait is the first to find the death of the holder, and
// takes the lock from the dead holder. From then on another goroutine may learn of the death and close the handle.
// Close must wait until the call no longer needs the words of the object.
func TestCloseWaitsForATryThatFindsADeath(t *testing.T) {
	for name, c := range triesOfADead {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			victim, closer := w.JoinVictim("victim"), w.Join("closer")
			held, _, _, err := c.open(victim)
			require.NoError(t, err)
			held.Lock()
			_, try, closeHandle, err := c.open(closer)
			require.NoError(t, err)
			t.Cleanup(crashpoint.Disarm)
			seen, goOn := make(chan struct{}), make(chan struct{})
			crashpoint.ArmFunc("arena.reap.seen", 1, func() { close(seen); <-goOn })
			w.Kill(victim)
			<-seen // the death watcher has not marked the death yet
			t.Cleanup(func() { close(goOn) })
			closed := make(chan error, 1)
			early, before := armClose(c.point, closeHandle, closed), crashpoint.HitCount(c.point)
			require.False(t, try())
			require.NotEqual(t, before, crashpoint.HitCount(c.point), "the call has not come to the point")
			require.NoError(t, <-closed)
			require.False(t, *early, "Close has returned while the call used the words")
		})
	}
}

// TestRecoverBesideTheFinderOfADeath: a call is the first to find the death of the holder, and makes the lock
// owner-dead. Before this call goes on, another call recovers the lock, and its repair fails. The error names the
// process that died.
func TestRecoverBesideTheFinderOfADeath(t *testing.T) {
	for name, c := range triesOfADead {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			victim := w.JoinVictim("victim")
			held, _, _, err := c.open(victim)
			require.NoError(t, err)
			held.Lock()
			survivor := w.Join("survivor") // only one, because only one death watcher is stopped below
			_, try, _, err := c.open(survivor)
			require.NoError(t, err)
			other, _, _, err := c.open(survivor)
			require.NoError(t, err)
			t.Cleanup(crashpoint.Disarm)
			seen, goOn := make(chan struct{}), make(chan struct{})
			crashpoint.ArmFunc("arena.reap.seen", 1, func() { close(seen); <-goOn })
			w.Kill(victim)
			<-seen // the death watcher has not marked the death yet
			t.Cleanup(func() { close(goOn) })
			failed := error(nil)
			crashpoint.ArmFunc(c.point, 1, func() {
				failed = other.Recover(func() error { return errors.New("it cannot be repaired") })
			})
			require.False(t, try())
			require.ErrorIs(t, failed, shmsync.ErrNotRecoverable)
			e := (*shmsync.Error)(nil)
			require.ErrorAs(t, failed, &e)
			require.NotNil(t, e.Who)
			require.Equal(t, "victim", e.Who.Label)
		})
	}
}

// TestLateFinderNamesNoEarlierDeath: a call finds the death of the first holder, makes the lock owner-dead, and is
// stopped. Another call recovers the lock. Then the second holder dies, and a second repair begins. During this repair
// the stopped call goes on. The repair fails, and the lock names the second holder.
func TestLateFinderNamesNoEarlierDeath(t *testing.T) {
	for name, c := range triesOfADead {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			first, survivor := w.JoinVictim("first"), w.Join("survivor") // no other death watcher is there
			dies := func(victim *arena.Arena) {
				held, _, _, err := c.open(victim)
				require.NoError(t, err)
				held.Lock()
				w.Kill(victim)
			}
			_, try, _, err := c.open(survivor)
			require.NoError(t, err)
			other, _, _, err := c.open(survivor)
			require.NoError(t, err)
			lock := other.(interface {
				LockContext(ctx context.Context) error
			}).LockContext
			t.Cleanup(crashpoint.Disarm)
			found, goOn, tried := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
			seen, end := make(chan struct{}), make(chan struct{})
			crashpoint.ArmFunc("arena.reap.seen", 1, func() { close(seen); <-end })
			dies(first)
			<-seen // the death watcher has not marked the death yet
			t.Cleanup(func() { close(end) })
			crashpoint.ArmFunc(c.point, 1, func() { close(found); <-goOn })
			go func() { tried <- try() }()
			<-found
			require.NoError(t, other.Recover(func() error { return nil }))
			dies(w.JoinVictim("second"))
			require.ErrorIs(t, lock(t.Context()), shmsync.ErrOwnerDead)
			require.ErrorIs(t, other.Recover(func() error {
				close(goOn)
				<-tried
				return errors.New("it cannot be repaired")
			}), shmsync.ErrNotRecoverable)
			e := (*shmsync.Error)(nil)
			require.ErrorAs(t, lock(t.Context()), &e)
			require.NotNil(t, e.Who)
			require.Equal(t, "second", e.Who.Label)
		})
	}
}

// TestTryIsCountedUntilItReturns: a TryRLock takes the lock from a dead writer, and then locks it. Between these two
// steps another goroutine may get the lock and close the handle. The call must stay counted until it returns, so that
// Close waits for it.
func TestTryIsCountedUntilItReturns(t *testing.T) {
	a := newArena(t, nil)
	l, err := prims.OpenRWSpinLock(a, "rw", &prims.RWSpinLockOptions{Policy: prims.PolicyRelease})
	require.NoError(t, err)
	victim := remoteSpin(t, a, "victim")
	victim.must(t, "lock", "rw")
	t.Cleanup(crashpoint.Disarm)
	seen, goOn, calls := make(chan struct{}), make(chan struct{}), -1
	crashpoint.ArmFunc("arena.reap.seen", 1, func() { close(seen); <-goOn })
	victim.proc.Kill(t)
	<-seen // the death watcher has not marked the death yet
	t.Cleanup(func() { close(goOn) })
	crashpoint.ArmFunc("rwspinlock.rlock.counted", 1, func() { calls = l.Calls() })
	require.True(t, l.TryRLock())
	require.Equal(t, 1, calls)
	require.Zero(t, l.Calls())
	l.RUnlock()
}

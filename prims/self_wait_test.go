//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/stretchr/testify/require"
)

// selfWaits are calls that wait for themselves: a function that the library runs makes a call that waits until the
// function has returned. Each of these calls runs in a child process. If the library does not detect the wait, the
// child hangs, and the test shows the goroutines of the child.
var selfWaits = map[string]func(w selfWaitWorld){
	"Once: Do in Do":               func(w selfWaitWorld) { o := w.once("o"); o.Do(func() { o.Do(none) }) },
	"Once: Do of another handle":   func(w selfWaitWorld) { w.once("o").Do(func() { w.once("o").Do(none) }) },
	"Once: DoContext in DoContext": func(w selfWaitWorld) { o := w.once("o"); o.Do(func() { o.DoContext(context.Background(), none) }) },
	"Once: a Do around another": func(w selfWaitWorld) {
		o, p := w.once("o"), w.once("p")
		o.Do(func() { p.Do(func() { o.Do(none) }) })
	},
	"Once: handle, then arena": func(w selfWaitWorld) { o := w.once("o"); o.Do(func() { o.Close(); w.closeArena() }) },
	"Once: Close of the arena": func(w selfWaitWorld) { w.once("o").Do(w.closeArena) },

	"Mutex: Update in Update": func(w selfWaitWorld) { m := w.rollback(); m.Update(inTx(func() { m.Update(inTx(none)) })) },
	"Mutex: Lock in Update":   func(w selfWaitWorld) { m := w.rollback(); m.Update(inTx(m.Lock)) },
	"Mutex: another handle":   func(w selfWaitWorld) { w.rollback().Update(inTx(func() { w.rollback().Lock() })) },
	"Mutex: Close in Update":  func(w selfWaitWorld) { m := w.rollback(); m.Update(inTx(func() { m.Close() })) },
	"Mutex: Close of arena":   func(w selfWaitWorld) { w.rollback().Update(inTx(w.closeArena)) },
	"Mutex: deferred by panic": func(w selfWaitWorld) {
		m := w.rollback()
		m.Update(inTx(func() { defer m.Lock(); panic("the program") }))
	},

	"RWMutex: Update in Update": func(w selfWaitWorld) { m := w.rwRollback(); m.Update(inTx(func() { m.Update(inTx(none)) })) },
	"RWMutex: RLock in Update":  func(w selfWaitWorld) { m := w.rwRollback(); m.Update(inTx(m.RLock)) },
	"RWMutex: upgradable lock":  func(w selfWaitWorld) { m := w.rwRollback(); m.Update(inTx(m.LockUpgradable)) },
	"RWMutex: Close in Update":  func(w selfWaitWorld) { m := w.rwRollback(); m.Update(inTx(func() { m.Close() })) },
	"RWMutex: Close of arena":   func(w selfWaitWorld) { w.rwRollback().Update(inTx(w.closeArena)) },

	"Synchronized: Update in Update": func(w selfWaitWorld) { s := w.synced(); s.Update(onCopy(func() { s.Update(onCopy(none)) })) },
	"Synchronized: View in Update":   func(w selfWaitWorld) { s := w.synced(); s.Update(onCopy(func() { s.View(onCopy(none)) })) },
	"Synchronized: Store in View":    func(w selfWaitWorld) { s := w.synced(); s.View(onCopy(func() { s.Store(1) })) },
	"Synchronized: another handle":   func(w selfWaitWorld) { w.synced().Update(onCopy(func() { w.synced().Store(1) })) },
	"Synchronized: Close in Update":  func(w selfWaitWorld) { s := w.synced(); s.Update(onCopy(func() { s.Close() })) },
	"Synchronized: Close of arena":   func(w selfWaitWorld) { w.synced().View(onCopy(w.closeArena)) },

	"Barrier: Arrive":         func(w selfWaitWorld) { w.barrier(func(x *prims.Barrier) { x.Arrive(1) }) },
	"Barrier: ArriveAndDrop":  func(w selfWaitWorld) { w.barrier((*prims.Barrier).ArriveAndDrop) },
	"Barrier: ArriveAndWait":  func(w selfWaitWorld) { w.barrier((*prims.Barrier).ArriveAndWait) },
	"Barrier: Wait":           func(w selfWaitWorld) { w.barrier(func(x *prims.Barrier) { x.Wait(0) }) },
	"Barrier: Close":          func(w selfWaitWorld) { w.barrier(func(x *prims.Barrier) { x.Close() }) },
	"Barrier: Close of arena": func(w selfWaitWorld) { w.barrier(func(*prims.Barrier) { w.closeArena() }) },

	"Waitable: Close in Update": func(w selfWaitWorld) { x := w.waitable(nil); x.Update(func(*int64) { x.Close() }) },
	"Waitable: arena in Update": func(w selfWaitWorld) { w.waitable(nil).Update(func(*int64) { w.closeArena() }) },
	"Waitable: arena in a rule": func(w selfWaitWorld) { w.waitable(w.closeArena).TryWait(1) },
	"Waitable: Close beside another Update": func(w selfWaitWorld) {
		x := w.waitable(nil)
		w.afterAnotherUpdate(x, func() { x.Close() })
	},
	"Waitable: arena beside another Update": func(w selfWaitWorld) { w.afterAnotherUpdate(w.waitable(nil), w.closeArena) },
	"Waitable: Wait in a rule": func(w selfWaitWorld) {
		var x *prims.Waitable[int64, int64]
		x = w.waitable(func() { x.Wait(1) })
		x.TryWait(1)
	},

	"Cond: Close in Unlock":          func(w selfWaitWorld) { w.condUnlocks(func(c *prims.Cond) { c.Close() }) },
	"Cond: Close of arena in Unlock": func(w selfWaitWorld) { w.condUnlocks(func(*prims.Cond) { w.closeArena() }) },
	"Cond: Close beside another Unlock": func(w selfWaitWorld) {
		w.afterAnotherUnlock(func(c *prims.Cond) { c.Close() })
	},
	"Cond: arena beside another Unlock": func(w selfWaitWorld) { w.afterAnotherUnlock(func(*prims.Cond) { w.closeArena() }) },

	"MultiLock: LockAll in Recover": func(w selfWaitWorld) {
		x := opens[*prims.MultiLock](w)(prims.OpenMultiLock(w.a, "multilock", nil))
		text := ""
		x.Recover(1, func() error { text = panicOf(func() { x.LockAll(0, 1, 2) }); return nil })
		x.Lock(0).Unlock() // LockAll has left no key locked
		panic(text)
	},

	"Waitable: arena in OnDeath": func(w selfWaitWorld) {
		x := w.lastClaim(w.closeArena)
		x.TryWait(1)
		panic(x.Err()) // TryWait does not pass the panic of the rule on; Err reports it
	},
	"Waitable: Wait in OnDeath": func(w selfWaitWorld) {
		var x *prims.Waitable[int64, int64]
		x = w.lastClaim(func() { x.Wait(1) })
		x.TryWait(1)
		panic(x.Err())
	},
	"Waitable: arena in OnDeath of State": func(w selfWaitWorld) {
		x := w.lastClaim(w.closeArena)
		x.State()
		panic(x.Err())
	},

	"RecoverAll: Close of arena": func(w selfWaitWorld) {
		prims.RecoverAll(w.a, func(l prims.Lost) error {
			if l.Object.Name == "waitgroup" {
				w.closeArena()
			}
			return nil
		})
	},
}

func init() {
	for kind := range repairables {
		selfWaits[kind+": Lock in Repair"] = func(w selfWaitWorld) {
			var x repairable
			x = w.repairable(kind, func() error { x.lock(); return nil })
			x.lock()
		}
		selfWaits[kind+": Close in Repair"] = func(w selfWaitWorld) {
			var x repairable
			x = w.repairable(kind, func() error { return x.close() })
			x.lock()
		}
		selfWaits[kind+": Close of arena in Repair"] = func(w selfWaitWorld) {
			w.repairable(kind, func() error { w.closeArena(); return nil }).lock()
		}
		selfWaits[kind+": Lock in Recover"] = func(w selfWaitWorld) {
			x := w.repairable(kind, nil)
			x.recover(func() error { x.lock(); return nil })
		}
		selfWaits[kind+": Recover in Recover"] = func(w selfWaitWorld) {
			x := w.repairable(kind, nil)
			x.recover(func() error { return w.repairable(kind, nil).recover(nothing) })
		}
		selfWaits[kind+": Close of arena in Recover"] = func(w selfWaitWorld) {
			w.repairable(kind, nil).recover(func() error { w.closeArena(); return nil })
		}
		selfWaits[kind+": goes on after the panic"] = func(w selfWaitWorld) {
			x, text := w.repairable(kind, nil), ""
			if err := x.recover(func() error {
				text = panicOf(x.lock)
				if x.rlock != nil {
					text += panicOf(x.rlock)
				}
				return nil
			}); err != nil {
				w.c.Fatal(err)
			}
			x.lock()
			x.unlock()
			if x.rlock != nil {
				x.rlock()
				x.runlock()
				x.lock()
				x.unlock()
			}
			panic(text)
		}
		if x := repairables[kind]; x.reads {
			selfWaits[kind+": RLock in Repair"] = func(w selfWaitWorld) {
				var x repairable
				x = w.repairable(kind, func() error { x.rlock(); return nil })
				x.rlock()
			}
		}
	}
	if crashpoint.Enabled {
		selfWaits["Barrier: Wait beside another Arrive"] = func(w selfWaitWorld) {
			w.afterAnotherArrive(func(x *prims.Barrier) { x.Wait(1) })
		}
		selfWaits["Barrier: Close beside another Arrive"] = func(w selfWaitWorld) {
			w.afterAnotherArrive(func(x *prims.Barrier) { x.Close() })
		}
	}
	delete(selfWaits, "multilock: Lock in Repair") // a MultiLock has no option Repair
	delete(selfWaits, "multilock: Close in Repair")
	delete(selfWaits, "multilock: Close of arena in Repair")

	proctest.Register("self-wait-dies", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a := opens[*arena.Arena](selfWaitWorld{c: c})(arena.Attach(name, nil))
		for kind := range repairables {
			selfWaitWorld{c, a}.repairable(kind, nil).lock()
		}
		selfWaitWorld{c, a}.lastClaim(none).TryWait(1)
		opens[*prims.WaitGroup](selfWaitWorld{c, a})(prims.OpenWaitGroup(a, "waitgroup", nil)).Add(1)
		c.Ready()
		c.Await()
	})
	proctest.Register("self-wait", func(c *proctest.Child) {
		var p [2]string
		c.Params(&p)
		a := opens[*arena.Arena](selfWaitWorld{c: c})(arena.Attach(p[0], nil))
		text := panicOf(func() { selfWaits[p[1]](selfWaitWorld{c, a}) })
		a.Close() // Close must not wait for the call that has panicked
		c.Say(text)
	})
}

// panicOf returns the text of the panic with which f ends, or "" if f returns.
func panicOf(f func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}

func none()          {}
func nothing() error { return nil }

func inTx(f func()) func(*prims.Tx) error { return func(*prims.Tx) error { f(); return nil } }
func onCopy(f func()) func(*int64) error  { return func(*int64) error { f(); return nil } }

// selfWaitWorld opens objects of an arena in a child process.
type selfWaitWorld struct {
	c interface{ Fatal(...any) }
	a *arena.Arena
}

func opens[H any](w selfWaitWorld) func(h H, err error) H {
	return func(h H, err error) H {
		if err != nil {
			w.c.Fatal(err)
		}
		return h
	}
}

func (w selfWaitWorld) closeArena() { w.a.Close() }

func (w selfWaitWorld) once(name string) *prims.Once {
	return opens[*prims.Once](w)(prims.OpenOnce(w.a, name, nil))
}

func (w selfWaitWorld) rollback() *prims.Mutex {
	return opens[*prims.Mutex](w)(prims.OpenMutex(w.a, "rollback", &prims.MutexOptions{Policy: prims.PolicyRollback}))
}

func (w selfWaitWorld) rwRollback() *prims.RWMutex {
	return opens[*prims.RWMutex](w)(prims.OpenRWMutex(w.a, "rw rollback", &prims.RWMutexOptions{Policy: prims.PolicyRollback}))
}

func (w selfWaitWorld) synced() *prims.Synchronized[int64] {
	return opens[*prims.Synchronized[int64]](w)(prims.OpenSynchronized(w.a, "s", int64(0), nil))
}

// barrier ends a phase, with a completion that calls f.
func (w selfWaitWorld) barrier(f func(x *prims.Barrier)) {
	var x *prims.Barrier
	x = opens[*prims.Barrier](w)(prims.OpenBarrier(w.a, "b", 1, &prims.BarrierOptions{Completion: func() { f(x) }}))
	x.Arrive(1)
}

// afterAnotherArrive calls f in the Completion of the second phase. The Arrive that ended the first phase, on another
// goroutine, returns after this Completion has begun and before f is called.
func (w selfWaitWorld) afterAnotherArrive(f func(x *prims.Barrier)) {
	var x *prims.Barrier
	phase, begun, ended, text := 0, make(chan struct{}), make(chan struct{}), make(chan string)
	x = opens[*prims.Barrier](w)(prims.OpenBarrier(w.a, "b", 1, &prims.BarrierOptions{Completion: func() {
		if phase++; phase == 2 {
			close(begun)
			<-ended
			text <- panicOf(func() { f(x) })
		}
	}}))
	crashpoint.ArmFunc("barrier.complete.opened", 1, func() {
		go x.Arrive(1)
		<-begun
	})
	x.Arrive(1)
	close(ended)
	panic(<-text)
}

// afterAnotherUpdate calls f in the function of an Update. When that function begins, the function of another
// goroutine's Update through the same handle is still running. That other function returns before f is called.
func (w selfWaitWorld) afterAnotherUpdate(x *prims.Waitable[int64, int64], f func()) {
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		x.Update(func(*int64) {
			close(begun)
			<-goOn
		})
	}()
	<-begun
	x.Update(func(*int64) {
		close(goOn)
		<-ended
		f()
	})
}

// unlocker is a lock whose Unlock is a function.
type unlocker func()

func (unlocker) Lock()     {}
func (f unlocker) Unlock() { f() }

// condUnlocks waits on a Cond. The Unlock of the lock of the Cond calls f.
func (w selfWaitWorld) condUnlocks(f func(c *prims.Cond)) {
	var c *prims.Cond
	c = opens[*prims.Cond](w)(prims.OpenCond(w.a, "cond", unlocker(func() { f(c) }), nil))
	c.Wait()
}

// afterAnotherUnlock calls f in the Unlock of a wait on a Cond. When that Unlock begins, the Unlock of another
// goroutine's wait through the same handle is still running. That other Unlock panics before f is called.
func (w selfWaitWorld) afterAnotherUnlock(f func(c *prims.Cond)) {
	n, begun, goOn, ended := 0, make(chan struct{}), make(chan struct{}), make(chan struct{})
	var c *prims.Cond
	c = opens[*prims.Cond](w)(prims.OpenCond(w.a, "cond", unlocker(func() {
		if n++; n == 1 {
			close(begun)
			<-goOn
			panic("the program")
		}
		close(goOn)
		<-ended
		f(c)
	}), nil))
	go func() {
		defer close(ended)
		panicOf(c.Wait)
	}()
	<-begun
	c.Wait()
}

// waitable returns a Waitable whose rule Claim calls f.
func (w selfWaitWorld) waitable(f func()) *prims.Waitable[int64, int64] {
	rules := prims.Rules[int64, int64]{Claim: func(*int64, int64) bool { f(); return true }}
	return opens[*prims.Waitable[int64, int64]](w)(prims.OpenWaitable(w.a, "waitable", 0, rules, nil))
}

// lastClaim opens a Waitable whose rule OnDeath calls f. The child process "self-wait-dies" has a claim of this
// Waitable when a test kills it.
func (w selfWaitWorld) lastClaim(f func()) *prims.Waitable[int64, int64] {
	rules := prims.Rules[int64, int64]{Claim: func(*int64, int64) bool { return true }, OnDeath: func(*int64, int64) { f() }}
	return opens[*prims.Waitable[int64, int64]](w)(prims.OpenWaitable(w.a, "claimed", 0, rules, nil))
}

// repairable is a lock that a process recovers.
type repairable struct {
	lock        func()
	lockContext func(ctx context.Context) error
	unlock      func()
	rlock       func()
	runlock     func()
	recover     func(func() error) error
	close       func() error
}

func (w selfWaitWorld) repairable(kind string, repair func() error) repairable {
	return opens[repairable](w)(repairables[kind].open(w.a, kind, repair))
}

// repairables opens a lock of each kind that has a Recover.
var repairables = map[string]struct {
	reads bool
	open  func(a *arena.Arena, name string, repair func() error) (repairable, error)
}{
	"mutex": {false, func(a *arena.Arena, name string, repair func() error) (repairable, error) {
		m, err := prims.OpenMutex(a, name, &prims.MutexOptions{Repair: repair})
		return repairable{m.Lock, m.LockContext, m.Unlock, nil, nil, m.Recover, m.Close}, err
	}},
	"cohort": {false, func(a *arena.Arena, name string, repair func() error) (repairable, error) {
		m, err := prims.OpenCohortMutex(a, name, &prims.CohortMutexOptions{Repair: repair})
		return repairable{m.Lock, m.LockContext, m.Unlock, nil, nil, m.Recover, m.Close}, err
	}},
	"rwmutex": {true, func(a *arena.Arena, name string, repair func() error) (repairable, error) {
		m, err := prims.OpenRWMutex(a, name, &prims.RWMutexOptions{Repair: repair})
		return repairable{m.Lock, m.LockContext, m.Unlock, m.RLock, m.RUnlock, m.Recover, m.Close}, err
	}},
	"spinlock": {false, func(a *arena.Arena, name string, repair func() error) (repairable, error) {
		m, err := prims.OpenSpinLock(a, name, &prims.SpinLockOptions{Repair: repair})
		return repairable{m.Lock, m.LockContext, m.Unlock, nil, nil, m.Recover, m.Close}, err
	}},
	"rwspinlock": {true, func(a *arena.Arena, name string, repair func() error) (repairable, error) {
		m, err := prims.OpenRWSpinLock(a, name, &prims.RWSpinLockOptions{Repair: repair})
		return repairable{m.Lock, m.LockContext, m.Unlock, m.RLock, m.RUnlock, m.Recover, m.Close}, err
	}},
	"fairmutex": {false, func(a *arena.Arena, name string, repair func() error) (repairable, error) {
		m, err := prims.OpenFairMutex(a, name, &prims.FairMutexOptions{Repair: repair})
		return repairable{m.Lock, m.LockContext, m.Unlock, nil, nil, m.Recover, m.Close}, err
	}},
	"multilock": {false, func(a *arena.Arena, name string, _ func() error) (repairable, error) {
		x, err := prims.OpenMultiLock(a, name, nil)
		var h prims.Hold
		lock := func() { h = x.Lock(1) }
		lockContext := func(ctx context.Context) error { _, err := x.LockContext(ctx, 1); return err }
		return repairable{lock, lockContext, func() { h.Unlock() }, nil, nil, func(f func() error) error { return x.Recover(1, f) }, x.Close}, err
	}},
}

// needGoroutine skips the test in a build in which the library cannot identify the calling goroutine.
func needGoroutine(t *testing.T) {
	if asm.Goroutine() == 0 {
		t.Skip("needs a build for amd64 or arm64 without the tag noasm: the assembly knows the calling goroutine")
	}
}

// TestSelfWaitsPanic: a call that would wait for itself panics, and the message names the call and the function.
func TestSelfWaitsPanic(t *testing.T) {
	needGoroutine(t)
	for name := range selfWaits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, nil)
			dies := proctest.Start(t, "self-wait-dies", proctest.Params(nameOf(a)))
			dies.Await(t)
			dies.Kill(t)
			alone(t, a, 1)
			child := proctest.Start(t, "self-wait", proctest.Params([2]string{nameOf(a), name}))
			var text string
			child.Recv(t, &text)
			require.Contains(t, text, "would wait for itself")
			child.Wait(t)
		})
	}
}

// TestCloseInARuleOfTheReaperPanics checks that Close of the arena panics in the rule OnDeath, which the reaper of a
// dead process runs.
func TestCloseInARuleOfTheReaperPanics(t *testing.T) {
	needGoroutine(t)
	a := newArena(t, nil)
	text := make(chan string, 1)
	x := selfWaitWorld{t, a}.lastClaim(func() {
		is := panicOf(func() { a.Close() })
		select {
		case text <- is:
		default: // the rule was called again
		}
	})
	dies := proctest.Start(t, "self-wait-dies", proctest.Params(nameOf(a)))
	dies.Await(t)
	dies.Kill(t)
	require.Contains(t, <-text, "would wait for itself")
	require.NoError(t, x.Close())
}

// TestAnotherGoroutineWaits checks that the library does not panic for a call that does not wait for itself: a call on
// another goroutine, or a call that does not wait for the function that makes the call.
func TestAnotherGoroutineWaits(t *testing.T) {
	a := newArena(t, nil)
	w := selfWaitWorld{t, a}
	o, s := w.once("o"), w.synced()
	other, err := arena.Create(arenaName(t), nil)
	require.NoError(t, err)
	second, err := prims.OpenSynchronized(a, "second", int64(0), nil)
	require.NoError(t, err)
	waits := make(chan error, 2)
	o.Do(func() {
		go func() { waits <- o.DoContext(context.Background(), none) }()
		waiting(t, a, "o", 1)
		require.NoError(t, s.Update(onCopy(func() {
			go func() { waits <- s.StoreContext(context.Background(), 1) }()
			waiting(t, a, "s", 1)
			require.NoError(t, second.Update(onCopy(func() { second.Load() })))
			require.NoError(t, second.Close())
			require.NoError(t, other.Close())
			require.ErrorIs(t, s.StoreContext(canceled(t), 1), context.Canceled)
			s.Load()
		})))
		require.ErrorIs(t, o.DoContext(canceled(t), none), context.Canceled)
	})
	require.NoError(t, <-waits)
	require.NoError(t, <-waits)
	p := w.once("p")
	p.Do(func() {
		go func() { waits <- a.Close() }()
		eventually(t, "Close has begun", func() string { return "" }, func() bool {
			return errors.Is(p.DoContext(canceled(t), none), shmsync.ErrClosed)
		})
		require.ErrorIs(t, a.Close(), shmsync.ErrClosed) // does not wait for the Close on the other goroutine
		p.Close()                                        // the Close of the arena has closed p already
	})
	require.NoError(t, <-waits)
}

// TestSelfWaitWithADeadlineEnds: a call whose context has a deadline does not wait for ever. It returns the error of the
// context, and the object can be used afterwards.
func TestSelfWaitWithADeadlineEnds(t *testing.T) {
	a := newArena(t, nil)
	dies := proctest.Start(t, "self-wait-dies", proctest.Params(nameOf(a)))
	dies.Await(t)
	dies.Kill(t)
	alone(t, a, 1)
	w := selfWaitWorld{t, a}
	s, m, rw, o := w.synced(), w.rollback(), w.rwRollback(), w.once("o")
	waits := map[string]func(ctx context.Context) error{
		"Synchronized": func(ctx context.Context) (err error) {
			s.Update(onCopy(func() { err = s.StoreContext(ctx, 1) }))
			return err
		},
		"Mutex": func(ctx context.Context) (err error) {
			m.Update(inTx(func() { err = m.LockContext(ctx) }))
			return err
		},
		"RWMutex": func(ctx context.Context) (err error) {
			rw.Update(inTx(func() { err = errors.Join(rw.RLockContext(ctx), rw.LockContext(ctx)) }))
			return err
		},
		"Once": func(ctx context.Context) (err error) {
			o.Do(func() { err = o.DoContext(ctx, none) })
			return err
		},
		"Barrier": func(ctx context.Context) (err error) {
			w.barrier(func(x *prims.Barrier) { err = errors.Join(x.WaitContext(ctx, 0), x.ArriveAndWaitContext(ctx)) })
			return err
		},
	}
	for kind := range repairables {
		x := w.repairable(kind, nil)
		waits[kind] = func(ctx context.Context) (err error) {
			x.recover(func() error { err = x.lockContext(ctx); return nil })
			x.lock()
			x.unlock()
			return err
		}
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			var err error
			require.Empty(t, panicOf(func() { err = wait(ctx) }))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

// TestGoroutineThatEndedIsForgotten checks that the library forgets a goroutine that ends in the function of an Update.
// The runtime may reuse the goroutine for a later one, whose calls must not panic.
func TestGoroutineThatEndedIsForgotten(t *testing.T) {
	a := newArena(t, nil)
	w := selfWaitWorld{t, a}
	s, m, b := w.synced(), w.rollback(), w.waitable(none)
	for range 200 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Update(onCopy(func() {
				m.Update(inTx(func() { b.Update(func(*int64) { runtime.Goexit() }) }))
			}))
		}()
		<-ended
		done := make(chan string)
		go func() {
			done <- panicOf(func() {
				s.Store(1)
				m.Lock()
				m.Unlock()
				require.NoError(t, w.synced().Close())
			})
		}()
		require.Empty(t, <-done)
	}
}

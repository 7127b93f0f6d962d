//go:build linux

package prims_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// countedContext counts the functions that context.AfterFunc has registered with it and that nobody has removed.
type countedContext struct {
	context.Context
	funcs *atomic.Int32
}

func (c countedContext) AfterFunc(func()) (stop func() bool) {
	c.funcs.Add(1)
	return func() bool { c.funcs.Add(-1); return true }
}

// Value hides the embedded context from package context, which would otherwise not call AfterFunc.
func (c countedContext) Value(any) any { return nil }

// TestRepairThatDoesNotReturnLeavesNothing checks a waiting call that finds that the holder has died, and whose Repair
// panics or ends the goroutine. The call leaves no function registered with its context, and the lock is not
// recoverable. The call may have got a wake that another waiter needs. So for a spin lock the test also checks that the
// call runs spinWaiter.leave, which passes the wake on.
func TestRepairThatDoesNotReturnLeavesNothing(t *testing.T) {
	for title, fails := range map[string]func(){"panic": func() { panic("the repair panics") }, "goexit": runtime.Goexit} {
		repair := func() error { fails(); return nil }
		for name, open := range map[string]func(*testing.T, *arena.Arena) (lock func(context.Context) error, state interface{ Offset() arena.Offset }){
			"mutex": func(t *testing.T, a *arena.Arena) (func(context.Context) error, interface{ Offset() arena.Offset }) {
				m, err := prims.OpenMutex(a, "mutex", &prims.MutexOptions{Repair: repair})
				require.NoError(t, err)
				return m.LockContext, m
			},
			"rwmutex": func(t *testing.T, a *arena.Arena) (func(context.Context) error, interface{ Offset() arena.Offset }) {
				m, err := prims.OpenRWMutex(a, "rwmutex", &prims.RWMutexOptions{Repair: repair})
				require.NoError(t, err)
				return m.RLockContext, m
			},
			"spin": func(t *testing.T, a *arena.Arena) (func(context.Context) error, interface{ Offset() arena.Offset }) {
				l, err := prims.OpenSpinLock(a, "spin", &prims.SpinLockOptions{Repair: repair})
				require.NoError(t, err)
				return l.LockContext, l
			},
			"rwspin": func(t *testing.T, a *arena.Arena) (func(context.Context) error, interface{ Offset() arena.Offset }) {
				l, err := prims.OpenRWSpinLock(a, "rwspin", &prims.RWSpinLockOptions{Repair: repair})
				require.NoError(t, err)
				return l.RLockContext, l
			},
		} {
			t.Run(name+" "+title, func(t *testing.T) {
				path := arenaName(t)
				p := proctest.Start(t, "recoverall/holder", proctest.Params(path))
				p.Await(t)
				a, err := arena.Attach(path, nil)
				require.NoError(t, err)
				defer a.Close()
				lock, x := open(t, a)
				inner, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx := countedContext{inner, new(atomic.Int32)}
				over := make(chan struct{})
				go func() {
					defer close(over)
					defer func() { recover() }()
					lock(ctx)
					t.Error("it returned")
				}()
				eventually(t, "it sleeps long", func() string { return words(a) }, func() bool {
					m, starves := x.(*prims.Mutex)
					if starves && prims.Starving(m) == 0 {
						prims.WakeInVain(m)
						return false
					}
					return waitsAt(a, x.Offset()) > 0 && (ctx.funcs.Load() > 0 || !shmsync.FeatureWaitV.Have())
				})
				var left atomic.Int32
				leaves := crashpoint.Enabled && strings.Contains(name, "spin")
				if leaves {
					t.Cleanup(crashpoint.Disarm)
					crashpoint.ArmFunc("spinlock.lock.leaving", 1, func() { left.Add(1) })
				}
				p.Signal(t, unix.SIGKILL)
				p.WaitSignal(t, unix.SIGKILL)
				<-over
				require.Equal(t, leaves, left.Load() == 1, "the waiter must leave")
				require.Zero(t, ctx.funcs.Load(), "functions left with the context")
				require.ErrorIs(t, lock(t.Context()), shmsync.ErrNotRecoverable)
				if m, ok := x.(*prims.Mutex); ok {
					require.Zero(t, prims.Starving(m), "a waiter that has left")
				}
			})
		}
	}
}

//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/prims"
)

// runsFunction describes a call that runs a function of the program, such as a repair, after the death of a process.
// The call uses the object "x".
type runsFunction struct {
	// die is what the victim does before it is killed, so that the call will run its function.
	die func(t *testing.T, a *arena.Arena)
	// run makes the call, which runs f.
	run func(t *testing.T, a *arena.Arena, f func() error) error
	// again makes the call again in another process, after the first process has closed its arena. It reports whether
	// the second call has run its function.
	again func(t *testing.T, a *arena.Arena) (ran bool)
	// keeps is true if the call returns with a hold. If the process closes the arena with this hold, the next such
	// call, in another process, runs its function, too.
	keeps bool
	// waits is true if the call may have to wait after its function has returned. In that case, Close may end the
	// call with an error.
	waits bool
}

// recoverable is a lock with the method Recover.
type recoverable interface {
	Lock()
	Recover(repair func() error) error
}

// recovers returns a runsFunction for the method Recover of a lock. The function locks does so for a call that locks a
// lock with the option Repair.
func recovers(open func(a *arena.Arena, repair func() error) (recoverable, error)) runsFunction {
	return runsFunction{
		die: func(t *testing.T, a *arena.Arena) {
			x, err := open(a, nil)
			require.NoError(t, err)
			x.Lock()
		},
		run: func(t *testing.T, a *arena.Arena, f func() error) error {
			x, err := open(a, nil)
			require.NoError(t, err)
			return x.Recover(f)
		},
		again: func(t *testing.T, a *arena.Arena) (ran bool) {
			x, err := open(a, nil)
			require.NoError(t, err)
			require.NoError(t, x.Recover(func() error { ran = true; return nil }))
			return ran
		},
	}
}

func locks[L recoverable](
	open func(a *arena.Arena, repair func() error) (L, error), lock func(x L) error, keeps bool,
) runsFunction {
	c := recovers(func(a *arena.Arena, repair func() error) (recoverable, error) { return open(a, repair) })
	c.run = func(t *testing.T, a *arena.Arena, f func() error) error {
		x, err := open(a, f)
		require.NoError(t, err)
		return lock(x)
	}
	c.keeps, c.waits = keeps, true
	return c
}

func openRepairedMutex(a *arena.Arena, repair func() error) (*prims.Mutex, error) {
	return prims.OpenMutex(a, "x", &prims.MutexOptions{Repair: repair})
}

func openRepairedCohort(a *arena.Arena, repair func() error) (*prims.CohortMutex, error) {
	return prims.OpenCohortMutex(a, "x", &prims.CohortMutexOptions{Repair: repair})
}

func openRepairedRWMutex(a *arena.Arena, repair func() error) (*prims.RWMutex, error) {
	return prims.OpenRWMutex(a, "x", &prims.RWMutexOptions{Repair: repair})
}

func openRepairedSpin(a *arena.Arena, repair func() error) (*prims.SpinLock, error) {
	return prims.OpenSpinLock(a, "x", &prims.SpinLockOptions{Repair: repair})
}

func openRepairedRWSpin(a *arena.Arena, repair func() error) (*prims.RWSpinLock, error) {
	return prims.OpenRWSpinLock(a, "x", &prims.RWSpinLockOptions{Repair: repair})
}

func openRepairedFair(a *arena.Arena, repair func() error) (*prims.FairMutex, error) {
	return prims.OpenFairMutex(a, "x", &prims.FairMutexOptions{Repair: repair})
}

// oneKey is the lock of one key of a MultiLock.
type oneKey struct{ x *prims.MultiLock }

func (k oneKey) Lock()                             { k.x.Lock(7) }
func (k oneKey) Recover(repair func() error) error { return k.x.Recover(7, repair) }

// asRecoverable turns the open function of one kind into the parameter of recovers.
func asRecoverable[L recoverable](open func(*arena.Arena, func() error) (L, error)) func(*arena.Arena, func() error) (recoverable, error) {
	return func(a *arena.Arena, repair func() error) (recoverable, error) { return open(a, repair) }
}

// functionsOfCalls has the calls that run a function of the program. Calls such as Update, which run the function
// while they hold the lock in the usual way, are not among them.
var functionsOfCalls = map[string]runsFunction{
	"mutex recover":      recovers(asRecoverable(openRepairedMutex)),
	"cohort recover":     recovers(asRecoverable(openRepairedCohort)),
	"rwmutex recover":    recovers(asRecoverable(openRepairedRWMutex)),
	"spinlock recover":   recovers(asRecoverable(openRepairedSpin)),
	"rwspinlock recover": recovers(asRecoverable(openRepairedRWSpin)),
	"fairmutex recover":  recovers(asRecoverable(openRepairedFair)),
	"multilock recover": recovers(func(a *arena.Arena, _ func() error) (recoverable, error) {
		x, err := prims.OpenMultiLock(a, "x", nil)
		return oneKey{x}, err
	}),

	"mutex lock":      locks(openRepairedMutex, func(x *prims.Mutex) error { return x.LockContext(context.Background()) }, true),
	"cohort lock":     locks(openRepairedCohort, func(x *prims.CohortMutex) error { return x.LockContext(context.Background()) }, true),
	"rwmutex lock":    locks(openRepairedRWMutex, func(x *prims.RWMutex) error { return x.LockContext(context.Background()) }, true),
	"spinlock lock":   locks(openRepairedSpin, func(x *prims.SpinLock) error { return x.LockContext(context.Background()) }, true),
	"rwspinlock lock": locks(openRepairedRWSpin, func(x *prims.RWSpinLock) error { return x.LockContext(context.Background()) }, true),
	"fairmutex lock":  locks(openRepairedFair, func(x *prims.FairMutex) error { return x.LockContext(context.Background()) }, true),
	"rwmutex rlock": locks(openRepairedRWMutex, func(x *prims.RWMutex) error {
		return x.RLockContext(context.Background())
	}, false),
	"rwmutex lockupgradable": locks(openRepairedRWMutex, func(x *prims.RWMutex) error {
		return x.LockUpgradableContext(context.Background())
	}, false),
	"rwspinlock rlock": locks(openRepairedRWSpin, func(x *prims.RWSpinLock) error {
		return x.RLockContext(context.Background())
	}, false),
	"rwspinlock lockupgradable": locks(openRepairedRWSpin, func(x *prims.RWSpinLock) error {
		return x.LockUpgradableContext(context.Background())
	}, true),

	"once": {
		die: func(*testing.T, *arena.Arena) {},
		run: func(t *testing.T, a *arena.Arena, f func() error) error {
			o, err := prims.OpenOnce(a, "x", nil)
			require.NoError(t, err)
			return o.DoContext(context.Background(), func() { f() })
		},
		again: func(t *testing.T, a *arena.Arena) (ran bool) {
			o, err := prims.OpenOnce(a, "x", nil)
			require.NoError(t, err)
			require.NoError(t, o.DoContext(t.Context(), func() { ran = true }))
			return ran
		},
	},
	"recoverall of a waitgroup": {
		die: func(t *testing.T, a *arena.Arena) {
			g, err := prims.OpenWaitGroup(a, "x", nil)
			require.NoError(t, err)
			g.Add(1)
		},
		run: func(t *testing.T, a *arena.Arena, f func() error) error {
			g, err := prims.OpenWaitGroup(a, "x", nil)
			require.NoError(t, err)
			require.ErrorIs(t, g.WaitContext(t.Context()), shmsync.ErrOwnerDead) // the death is known
			require.NoError(t, g.Close())
			lost, err := prims.RecoverAll(a, func(prims.Lost) error { return f() })
			if err == nil && len(lost) != 1 {
				err = errors.New("the waitgroup is not lost")
			}
			return err
		},
		again: func(t *testing.T, a *arena.Arena) (ran bool) {
			_, err := prims.RecoverAll(a, func(prims.Lost) error { ran = true; return nil })
			require.NoError(t, err)
			return ran
		},
	},
}

// TestCloseOfTheArenaWaitsForAFunctionOfACall checks that Close waits while a call of another goroutine runs a
// function of the program, such as the repair of a Recover. Otherwise a peer could run its own function for the same
// object at the same time, and the result of the call would be wrong.
func TestCloseOfTheArenaWaitsForAFunctionOfACall(t *testing.T) {
	for name, call := range functionsOfCalls {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			victim, closer, peer := w.JoinVictim("victim"), w.Join("closer"), w.Join("peer")
			call.die(t, victim)
			w.Kill(victim)
			in, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				err := errors.New("a requirement of the call failed")
				defer func() {
					if r := recover(); r != nil {
						err = fmt.Errorf("panic: %v", r)
					}
					ended <- err
				}()
				err = call.run(t, closer, func() error {
					close(in)
					<-goOn
					return nil
				})
			}()
			select {
			case <-in:
			case err := <-ended:
				t.Fatalf("the call returned %v and did not run its function", err)
			}
			closed := closing(t, closer)
			select {
			case err := <-closed:
				t.Errorf("Close returned %v while the function ran; a function of a peer ran then: %v", err, call.again(t, peer))
				closed <- err
			case <-after(100 * time.Millisecond):
			}
			close(goOn)
			err := <-ended
			refused := call.waits && errors.Is(err, shmsync.ErrClosed)
			if !refused {
				require.NoError(t, err)
			}
			require.NoError(t, <-closed)
			if !t.Failed() {
				require.Equal(t, call.keeps && !refused, call.again(t, peer), "the function of a peer ran")
			}
		})
	}
}

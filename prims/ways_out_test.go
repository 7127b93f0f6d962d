//go:build linux

package prims_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// plainLocks has the locks whose lock call returns no error.
var plainLocks = map[string]func(a *arena.Arena) (func(), error){
	"mutex":  func(a *arena.Arena) (func(), error) { m, err := prims.OpenMutex(a, "m", nil); return m.Lock, err },
	"cohort": func(a *arena.Arena) (func(), error) { m, err := prims.OpenCohortMutex(a, "m", nil); return m.Lock, err },
	"rwmutex": func(a *arena.Arena) (func(), error) {
		m, err := prims.OpenRWMutex(a, "m", nil)
		return m.Lock, err
	},
	"rwspinlock": func(a *arena.Arena) (func(), error) {
		m, err := prims.OpenRWSpinLock(a, "m", nil)
		return m.Lock, err
	},
	"fairmutex": func(a *arena.Arena) (func(), error) {
		m, err := prims.OpenFairMutex(a, "m", nil)
		return m.Lock, err
	},
	"spinlock": func(a *arena.Arena) (func(), error) {
		m, err := prims.OpenSpinLock(a, "m", nil)
		return m.Lock, err
	},
	"multilock": func(a *arena.Arena) (func(), error) {
		m, err := prims.OpenMultiLock(a, "m", nil)
		return func() { m.Lock(7) }, err
	},
}

type plainParams struct{ Arena, Lock string }

func init() {
	proctest.Register("plain lock", func(c *proctest.Child) {
		var p plainParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		lock, err := plainLocks[p.Lock](a)
		if err != nil {
			c.Fatal(err)
		}
		lock()
		c.Ready()
		c.Await()
	})
}

// TestLockPanicsWithTheWaysOut: the holder of a lock has died, and a Lock that returns no error panics. The
// message says what the caller can do instead.
func TestLockPanicsWithTheWaysOut(t *testing.T) {
	for name, open := range plainLocks {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			lock, err := open(a)
			require.NoError(t, err)
			p := proctest.Start(t, "plain lock", proctest.Params(plainParams{nameOf(a), name}))
			p.Await(t)
			p.Signal(t, os.Kill)
			p.WaitSignal(t, syscall.SIGKILL)
			defer func() {
				err, _ := recover().(error)
				require.ErrorIs(t, err, shmsync.ErrOwnerDead)
				for _, way := range []string{"LockContext", "Recover", "Repair", "PolicyRollback", "Synchronized"} {
					require.ErrorContains(t, err, way)
				}
			}()
			lock()
		})
	}
}

//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// policyLock has the calls that all locks with a Policy have in common.
type policyLock struct {
	lock    func() error
	recover func(context.Context, func() error) error
	err     func() error // the Err of State
}

// policyLocks are the kinds of locks that have a Policy and a Recover.
var policyLocks = map[string]func(a *arena.Arena, p prims.Policy) (policyLock, error){
	"mutex": func(a *arena.Arena, p prims.Policy) (policyLock, error) {
		l, err := prims.OpenMutex(a, "mutex", &prims.MutexOptions{Policy: p})
		return policyLock{func() error { return l.LockContext(context.Background()) }, l.RecoverContext, func() error { return l.State().Err }}, err
	},
	"cohort mutex": func(a *arena.Arena, p prims.Policy) (policyLock, error) {
		l, err := prims.OpenCohortMutex(a, "cohort mutex", &prims.CohortMutexOptions{Policy: p})
		return policyLock{func() error { return l.LockContext(context.Background()) }, l.RecoverContext, func() error { return l.State().Err }}, err
	},
	"fair mutex": func(a *arena.Arena, p prims.Policy) (policyLock, error) {
		l, err := prims.OpenFairMutex(a, "fair mutex", &prims.FairMutexOptions{Policy: p})
		return policyLock{func() error { return l.LockContext(context.Background()) }, l.RecoverContext, func() error { return l.State().Err }}, err
	},
	"rwmutex": func(a *arena.Arena, p prims.Policy) (policyLock, error) {
		l, err := prims.OpenRWMutex(a, "rwmutex", &prims.RWMutexOptions{Policy: p})
		return policyLock{func() error { return l.LockContext(context.Background()) }, l.RecoverContext, func() error { return l.State().Err }}, err
	},
	"spin lock": func(a *arena.Arena, p prims.Policy) (policyLock, error) {
		l, err := prims.OpenSpinLock(a, "spin lock", &prims.SpinLockOptions{Policy: p})
		return policyLock{func() error { return l.LockContext(context.Background()) }, l.RecoverContext, func() error { return l.State().Err }}, err
	},
	"reader/writer spin lock": func(a *arena.Arena, p prims.Policy) (policyLock, error) {
		l, err := prims.OpenRWSpinLock(a, "reader/writer spin lock", &prims.RWSpinLockOptions{Policy: p})
		return policyLock{func() error { return l.LockContext(context.Background()) }, l.RecoverContext, func() error { return l.State().Err }}, err
	},
	"multilock": func(a *arena.Arena, p prims.Policy) (policyLock, error) {
		l, err := prims.OpenMultiLock(a, "multilock", &prims.MultiLockOptions{Policy: p})
		return policyLock{
			func() error { _, err := l.LockContext(context.Background(), 7); return err },
			func(ctx context.Context, f func() error) error { return l.RecoverContext(ctx, 7, f) },
			func() error { return l.State(7).Err },
		}, err
	},
}

func init() {
	proctest.Register("policylocks/hold", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		for kind, open := range policyLocks {
			l, err := open(a, prims.PolicyReport)
			if err == nil {
				err = l.lock()
			}
			if err != nil {
				c.Fatal(fmt.Errorf("%s: %w", kind, err))
			}
		}
		c.Ready()
		c.Await()
	})
}

// TestLocksRecoverWithoutRepairChangesNothing: a Recover without a repair panics before it takes
// the lock. The lock stays owner-dead, and a later Recover with a repair makes it usable.
func TestLocksRecoverWithoutRepairChangesNothing(t *testing.T) {
	a := newArena(t, nil)
	p := proctest.Start(t, "policylocks/hold", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	p.Kill(t)
	for kind, open := range policyLocks {
		t.Run(kind, func(t *testing.T) {
			l, err := open(a, prims.PolicyReport)
			require.NoError(t, err)
			require.ErrorIs(t, l.lock(), shmsync.ErrOwnerDead)
			name := kind + " " + kind
			if kind == "multilock" {
				name = "key 7 of " + name
			}
			require.PanicsWithValue(t, "shmsync: Recover of "+name+" without a repair", func() { l.recover(t.Context(), nil) })
			require.ErrorIs(t, l.err(), shmsync.ErrOwnerDead)
			ran := 0
			require.NoError(t, l.recover(t.Context(), func() error { ran++; return nil }))
			require.Equal(t, 1, ran)
			require.PanicsWithValue(t, "shmsync: Recover of "+name+" without a repair", func() { l.recover(t.Context(), nil) })
			require.NoError(t, l.lock(), "a healthy lock stays free")
		})
	}
}

// TestLocksRefuseInvalidPolicies: an Open with an invalid Policy panics and creates nothing,
// whether the object exists or not.
func TestLocksRefuseInvalidPolicies(t *testing.T) {
	a := newArena(t, nil)
	for kind, open := range policyLocks {
		t.Run(kind, func(t *testing.T) {
			for _, p := range []prims.Policy{prims.PolicyRollback + 1, 7, 1 << 8, 1<<32 - 1} {
				message := fmt.Sprintf("shmsync: %s %q: there is no policy %d", kind, kind, uint32(p))
				require.PanicsWithValue(t, message, func() { open(a, p) })
			}
			for o := range a.Objects() {
				require.NotEqual(t, kind, o.Name)
			}
			_, err := open(a, prims.PolicyReport)
			require.NoError(t, err)
			require.Panics(t, func() { open(a, 7) })
		})
	}
}

//go:build linux

package prims_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestCohortMutexSemantics: a CohortMutex has the properties of a Mutex, even if its callers run on
// several NUMA nodes and move between them.
func TestCohortMutexSemantics(t *testing.T) {
	onCohort(t, map[string]func(t *testing.T){
		"TryLock":         TestMutexTryLock,
		"waits":           TestMutexWaits,
		"context":         TestMutexContext,
		"cancel":          TestMutexCancelPassesOn,
		"recover healthy": TestMutexRecoverHealthy,
		"hammer":          TestMutexHammerElsewhere,
		"arena closes":    TestMutexArenaClose,
		"repair option":   TestMutexRepairOption,
		"hand-off": func(t *testing.T) {
			for _, waiters := range []int{1, 6} {
				handOff(t, waiters)
			}
		},
	})
}

// TestCohortMutexDeaths: a CohortMutex survives the deaths and stops that a Mutex survives.
func TestCohortMutexDeaths(t *testing.T) {
	onCohort(t, map[string]func(t *testing.T){
		"holder dies":             TestMutexHolderDies,
		"holder exits":            TestMutexHolderExits,
		"reaped":                  TestMutexReaped,
		"recoverer dies":          TestMutexRecovererDies,
		"recover race":            TestMutexRecoverRace,
		"waiter dies":             TestMutexWaiterDies,
		"holder stopped":          func(t *testing.T) { holderStopped(t, 300*time.Millisecond, nil) },
		"first watcher stopped":   TestMutexFirstWatcherStopped,
		"stopped anywhere":        TestMutexStoppedAnywhere,
		"without periodic checks": TestWithoutChecks,
	})
}

// TestCohortMutexFallbacks: a Mutex works without some features of the kernel, which a sandbox may
// forbid. A CohortMutex also works without these features.
func TestCohortMutexFallbacks(t *testing.T) {
	disabled := []string{"robust", "waitv", "membarrier", "robust,waitv,membarrier"}
	onCohort(t, map[string]func(t *testing.T){
		"hammer": func(t *testing.T) {
			for _, disable := range disabled {
				hammerElsewhere(t, 3, 4, 300, proctest.Env("SHMSYNC_DISABLE="+disable))
				hammerMixed(t, []string{"SHMSYNC_DISABLE=" + disable})
			}
		},
		"holder dies": func(t *testing.T) {
			for _, disable := range disabled {
				holderDies(t, []string{"SHMSYNC_DISABLE=" + disable})
			}
		},
	})
}

func TestCohortMutexUnlockMistakes(t *testing.T) {
	a := newArena(t, nil)
	c, err := prims.OpenCohortMutex(a, "ledger", &prims.CohortMutexOptions{Nodes: 3})
	require.NoError(t, err)
	require.PanicsWithValue(t, "shmsync: Unlock of cohort mutex ledger, which this process does not hold: it is free", c.Unlock)
	c.Lock()
	c.Unlock()
	require.Panics(t, c.Unlock)
	require.PanicsWithValue(t, "shmsync: Recover of cohort mutex ledger without a repair", func() { c.RecoverContext(t.Context(), nil) })
}

func TestCohortMutexOpen(t *testing.T) {
	a := newArena(t, nil)
	c, err := prims.OpenCohortMutex(a, "c", &prims.CohortMutexOptions{Nodes: 5, Spin: time.Microsecond, Policy: prims.PolicyRelease})
	require.NoError(t, err)
	require.Equal(t, 5, c.Nodes())
	require.Equal(t, time.Microsecond, c.Spin())
	require.Equal(t, prims.PolicyRelease, c.Policy())
	for _, opt := range []*prims.CohortMutexOptions{nil, {Nodes: 5}, {Policy: prims.PolicyRelease, Nodes: 5}} {
		again, err := prims.OpenCohortMutex(a, "c", opt)
		require.NoError(t, err)
		require.NotSame(t, c, again)
		require.NoError(t, again.Close())
	}
	for want, opt := range map[string]*prims.CohortMutexOptions{
		"it is for 5 nodes, asked for 4":          {Nodes: 4},
		"its policy is release, asked for report": {Policy: prims.PolicyReport},
	} {
		_, err := prims.OpenCohortMutex(a, "c", opt)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.ErrorContains(t, err, want)
	}
	_, err = prims.OpenMutex(a, "c", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	_, err = prims.OpenCohortMutex(a, "m", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	at, err := prims.CohortMutexAt(a, c.Offset())
	require.NoError(t, err)
	require.Equal(t, c.Offset(), at.Offset())
	require.NoError(t, at.Close())
	c.SetSpin(-1)
	require.EqualValues(t, -1, c.Spin())
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Close(), shmsync.ErrClosed)
	require.NoError(t, a.Delete("c"))

	// By default, a CohortMutex has a local lock for each node of this host. On a host with one node it works as a
	// Mutex.
	c, err = prims.OpenCohortMutex(a, "", nil)
	require.NoError(t, err)
	require.Positive(t, c.Nodes())
	require.LessOrEqual(t, c.Nodes(), 32)
	c.Lock()
	require.False(t, c.TryLock())
	c.Unlock()

	for want, opt := range map[string]*prims.CohortMutexOptions{
		`shmsync: cohort mutex "c": Nodes is 33, which is not within 0..32`:           {Nodes: 33},
		`shmsync: cohort mutex "c": MaxSpinners is -1, which is not within 0..2^31-1`: {Contention: prims.Contention{MaxSpinners: -1}},
		`shmsync: cohort mutex "c": Nodes is -1, which is not within 0..32`:           {Nodes: -1},
	} {
		require.PanicsWithValue(t, want, func() { prims.OpenCohortMutex(a, "c", opt) })
	}
}

func TestCohortMutexState(t *testing.T) {
	a := newArena(t, &arena.Options{Label: "me"})
	c, err := prims.OpenCohortMutex(a, "c", &prims.CohortMutexOptions{Nodes: 3})
	require.NoError(t, err)
	require.Equal(t, prims.CohortMutexState{MutexState: prims.MutexState{Word: "free"}, Node: -1}, c.State())
	require.Equal(t, "cohort mutex c: free", c.String())
	onCohortNode(t, 2)
	c.Lock()
	s := c.State()
	require.True(t, s.Held)
	require.False(t, s.Waiting)
	require.Equal(t, os.Getpid(), s.Owner.PID)
	require.Regexp(t, `^cohort mutex c: held by 1\.1`, c.String())
	require.Equal(t, -1, s.Node, "nobody competes")
	here := localActor(a)
	here.local.(*stage).mutexes["c"] = cohortActor{c}
	ids := []int{here.blocked(t, order{Op: "lock", Object: "c"}), here.blocked(t, order{Op: "lock", Object: "c"})}
	require.True(t, c.State().Waiting)
	c.Unlock()
	for len(ids) > 0 {
		var got int
		eventually(t, "somebody gets it", c.String, func() bool {
			for i, id := range ids {
				if _, ok := here.poll(t, id); ok {
					got = i
					return true
				}
			}
			return false
		})
		ids = append(ids[:got], ids[got+1:]...)
		c.Unlock()
	}
	require.False(t, c.State().Held)
}

// TestCohortMutexInspected: an Inspector shows the holder of the CohortMutex, the holders of the
// local locks, and the waits at each lock. A tool can recover the lock and set how long waiters
// spin.
func TestCohortMutexInspected(t *testing.T) {
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	holder := remoteActor(t, a, "holder", cohortOn(0)...)
	holder.must(t, order{Op: "lock", Object: "m"})
	one := remoteActor(t, a, "one", cohortOn(1)...)
	one.blocked(t, order{Op: "lock", Object: "m"})
	var check arenakernel.Inspection
	eventually(t, "it waits", c.String, func() bool {
		check = countsLook(t, nameOf(a), "m")
		return len(check.Waits) == 1
	})
	require.NoError(t, check.Err)
	require.Len(t, check.Holds, 1)
	require.Equal(t, "holder", a.Who(check.Holds[0].Owner).Label)
	require.Equal(t, "one", a.Who(check.Waits[0].Owner).Label)
	require.Equal(t, "lock", check.Waits[0].For)
	require.Equal(t, []int{0}, check.Waits[0].On)
	told := map[string]string{}
	for _, w := range check.Words {
		told[w.Name] = w.Text
	}
	require.Regexp(t, `^held by 3\.1`, told["local lock 1"])
	require.Equal(t, "4 local locks", told["nodes"])
	require.NotContains(t, told, "local lock 0")
	// A waiter at a local lock also waits for the holder of the CohortMutex.
	one.proc.Stop(t)
	two := remoteActor(t, a, "two", cohortOn(1)...)
	two.start(order{Op: "lock", Object: "m"})
	eventually(t, "both wait", c.String, func() bool {
		check = countsLook(t, nameOf(a), "m")
		return len(check.Waits) == 2
	})
	for _, w := range check.Waits {
		require.Contains(t, []string{"lock", "local lock 1"}, w.For)
		require.Equal(t, []int{0}, w.On)
	}
	two.proc.Kill(t)
	one.proc.Kill(t)
	holder.proc.Kill(t)
	alone(t, a, 1)
	require.ErrorIs(t, c.State().Err, shmsync.ErrOwnerDead)
	require.NoError(t, prims.RecoverAtContext(t.Context(), a, arena.Object(c.Object()), 0, func() error { return nil }))
	require.True(t, c.TryLock())
	c.Unlock()
	require.NoError(t, prims.SetSpinOf(a, arena.Object(c.Object()), time.Microsecond))
	require.Equal(t, time.Microsecond, c.Spin())
}

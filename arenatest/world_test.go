//go:build linux

package arenatest_test

import (
	"context"
	"io/fs"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestArenaIsRemoved: each World has a unique name, which is gone after the test.
func TestArenaIsRemoved(t *testing.T) {
	var names []string
	require.Empty(t, failures(t, func(t testing.TB) {
		for range 2 {
			w := arenatest.New(t, nil)
			w.Join("a")
			names = append(names, w.Name())
			i, err := arena.Inspect(w.Name())
			require.NoError(t, err)
			i.Close()
		}
	}))
	require.NotEqual(t, names[0], names[1])
	for _, name := range names {
		_, err := arena.Attach(name, nil)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

// TestKill: the survivors learn who died. They see what the victim stored before it died, and
// nothing of what its goroutines store afterwards.
func TestKill(t *testing.T) {
	w := arenatest.New(t, nil)
	victim, survivor := w.JoinVictim("victim"), w.Join("survivor")
	theirs, mine := first(prims.OpenMutex(victim, "m", nil)), first(prims.OpenMutex(survivor, "m", nil))
	v, seen := first(arena.Value[guarded](victim, "v")), first(arena.Value[guarded](survivor, "v"))

	theirs.Lock()
	v.N = 1
	w.Kill(victim)
	v.M = 1
	w.Kill(victim) // a second Kill has no effect

	err := mine.LockContext(context.Background())
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	require.Contains(t, err.Error(), "victim")
	require.NoError(t, mine.Recover(func() error {
		require.Equal(t, guarded{N: 1}, *seen)
		seen.N = 2
		return nil
	}))
	require.EqualValues(t, 1, v.N)
	theirs.Unlock() // the victim unlocks its own copy
	require.NoError(t, victim.Close())
}

// TestKillOfTheOnlyParticipant kills the only participant while its death watcher and its poller sleep. Kill ends the
// death watcher, although no other participant would wake it. Close of the victim ends the poller.
func TestKillOfTheOnlyParticipant(t *testing.T) {
	for range 5 {
		w := arenatest.New(t, nil)
		victim := w.JoinVictim("victim")
		m, err := prims.OpenMutex(victim, "m", nil)
		require.NoError(t, err)
		m.Lock()
		rules := prims.Rules[int64, int64]{Claim: func(*int64, int64) bool { return false }}
		_, err = prims.OpenWaitable(victim, "w", 0, rules, nil) // starts the poller
		require.NoError(t, err)
		// Wait until the death watcher does not wake by itself any more. Its last work is to make this process a target of
		// fences, on systems that have fences.
		fences := shmsync.FeatureMembarrier.Check() == nil
		for end := time.Now().Add(proctest.Scale(time.Minute)); fences && !(*arenakernel.Arena)(victim).Fenced(); {
			require.True(t, time.Now().Before(end), "the victim is no target of fences")
			runtime.Gosched()
		}
		w.Kill(victim)
		m, err = prims.OpenMutex(w.Join("heir"), "m", nil)
		require.NoError(t, err)
		require.ErrorIs(t, m.LockContext(t.Context()), shmsync.ErrOwnerDead)
		require.NoError(t, victim.Close())
	}
}

// TestKilledWaiter kills a waiter: its turn passes to the next waiter, and its goroutine waits for
// ever.
func TestKilledWaiter(t *testing.T) {
	w := arenatest.New(t, nil)
	victim, a := w.JoinVictim("victim"), w.Join("a")
	theirs, mine := first(prims.OpenFairMutex(victim, "m", nil)), first(prims.OpenFairMutex(a, "m", nil))
	mine.Lock()
	go theirs.Lock()
	awaitWaiter(t, a)
	w.Kill(victim)
	mine.Unlock()
	mine.Lock()
	//lint:ignore SA2001 the test is that Lock returns
	mine.Unlock()
}

// awaitWaiter returns when a goroutine waits for an object of the arena.
func awaitWaiter(t *testing.T, a *arena.Arena) {
	for {
		for o := range a.Objects() {
			if len(a.Inspect(o).Waits) > 0 {
				return
			}
		}
		if t.Context().Err() != nil {
			t.Fatal("nobody waits")
		}
	}
}

// A test fails if it leaves something behind, and the error names the participants concerned.
func TestLeftovers(t *testing.T) {
	for name, c := range map[string]struct {
		test func(t testing.TB, w *arenatest.World)
		want []string
	}{
		"a lock": {func(t testing.TB, w *arenatest.World) {
			first(prims.OpenMutex(w.Join("forgetful"), "ledger", nil)).Lock()
		}, []string{`"forgetful" still has ledger: exclusive`}},
		"a lease": {func(t testing.TB, w *arenatest.World) {
			q := first(prims.OpenQueue[uint64](w.Join("worker"), "jobs", 2, nil))
			must(q.Put(1))
			first(q.Lease())
		}, []string{`"worker" still has jobs: lease`}},
		"a permit": {func(t testing.TB, w *arenatest.World) {
			first(prims.OpenSemaphore(w.Join("worker"), "limit", 2, nil)).Acquire(1)
		}, []string{`"worker" still has limit: permits`}},
		"a wait": {func(t testing.TB, w *arenatest.World) {
			a := w.Join("worker")
			q := first(prims.OpenQueue[uint64](a, "jobs", 2, nil))
			go q.Get()
			for {
				for o := range a.Objects() {
					if len(a.Inspect(o).Waits) > 0 {
						return
					}
				}
			}
		}, []string{`a goroutine of "worker" still waits for jobs`}},
		"nothing": {func(t testing.TB, w *arenatest.World) {
			a, b, victim := w.Join("a"), w.Join("b"), w.JoinVictim("victim")
			first(prims.OpenMutex(victim, "ledger", nil)).Lock()
			w.Kill(victim)
			m := first(prims.OpenMutex(a, "other", nil))
			m.Lock()
			//lint:ignore SA2001 the test is that Lock returns
			m.Unlock()
			first(prims.OpenMutex(b, "closed", nil)).Lock()
			must(b.Close())
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			report := failures(t, func(t testing.TB) { c.test(t, arenatest.New(t, nil)) })
			if c.want == nil {
				require.Empty(t, report)
			}
			for _, want := range c.want {
				require.Contains(t, report, want)
			}
		})
	}
}

// TestKillOfOthers: Kill refuses to kill a participant that JoinVictim did not return, and says
// what to do.
func TestKillOfOthers(t *testing.T) {
	require.Contains(t, failures(t, func(t testing.TB) {
		w := arenatest.New(t, nil)
		w.Kill(w.Join("a"))
	}), `Kill of "a", which joined by Join; a participant that is to be killed joins by JoinVictim`)
	require.Contains(t, failures(t, func(t testing.TB) {
		w := arenatest.New(t, nil)
		w.Kill(arenatest.New(t, nil).JoinVictim("a"))
	}), "no participant of this World")
}

// TestOpenByName checks that arena.Open with the name of a World joins the World's arena, as one more
// participant.
func TestOpenByName(t *testing.T) {
	w := arenatest.New(t, nil)
	a := w.Join("a")
	b := first(arena.Open(w.Name(), &arena.Options{Label: "b"}))
	v, seen := first(arena.Value[guarded](a, "v")), first(arena.Value[guarded](b, "v"))
	require.NotEqual(t, a.Self(), b.Self())
	v.N = 7
	require.EqualValues(t, 7, seen.N)
	require.NoError(t, b.Close())
}

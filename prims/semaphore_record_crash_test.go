//go:build linux && crashpoint

package prims_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// A process dies, or is stopped, while it makes its record of a Semaphore: the first record, which is
// the base, or a later one. Others open the Semaphore, wait, and are served, and it can be deleted.
func TestSemaphoreRecordAtEveryPoint(t *testing.T) {
	for _, point := range []string{"arena.slotrecord.claimed", "arena.slotrecord.before_push", "arena.slotrecord.pushed"} {
		for _, mode := range []prims.SemaphoreMode{prims.SemaphoreOwned, prims.SemaphoreTransferable} {
			for name, stop := range map[string]bool{"dies": false, "is stopped": true} {
				for _, first := range []bool{true, false} {
					what := point + "/" + mode.String() + "/" + name
					if first {
						what += "/first"
					}
					t.Run(what, func(t *testing.T) { recordAt(t, point, mode, stop, first) })
				}
			}
		}
	}
}

func recordAt(t *testing.T, point string, mode prims.SemaphoreMode, stop, first bool) {
	a := newArena(t, nil)
	opts := &prims.SemaphoreOptions{Mode: mode}
	if !first {
		require.NoError(t, newSemaphore(t, a, "s", 2, opts).Close())
	}
	env := "SHMSYNC_CRASHPOINT=" + point
	if stop {
		env = "SHMSYNC_CRASHPOINT_STOP=" + point
	}
	v := proctest.Start(t, "semaphore/first", proctest.Params(semFirst{nameOf(a), mode}), proctest.Env(env),
		proctest.Dump(func() string { return words(a) }))
	if stop {
		v.AwaitStop(t)
	} else {
		v.WaitSignal(t, syscall.SIGKILL)
	}
	s, err := prims.AttachSemaphore(a, "s", nil)
	require.NoError(t, err)
	p := proctest.Start(t, "semaphore", proctest.Params(nameOf(a)))
	p.Await(t)
	require.Empty(t, semDo(t, p, semOrder{Verb: "acquire", N: 2}).Err)
	got := make(chan error, 1)
	go func() { got <- s.AcquireContext(t.Context(), 1) }()
	semQueued(t, a, s, 1)
	require.Empty(t, semDo(t, p, semOrder{Verb: "release", N: 2}).Err)
	require.NoError(t, <-got)
	s.Release(1)
	require.EqualValues(t, 2, s.State().Free)
	p.Kill(t)
	if stop {
		v.Kill(t)
	}
	alone(t, a, 1)
	require.NoError(t, s.Close())
	require.Zero(t, a.Stats().Claimed)
	require.NoError(t, a.Delete("s"))
	require.Zero(t, a.Stats().SlotRecords)
	require.NoError(t, a.Check())
}

//go:build linux && crashpoint

package prims_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
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

// The first process that opens a Semaphore is stopped before its record, which is the base, is no longer
// a claimed block. Another process dies while it grants permits. The next one carries out its redo log.
func TestSemaphoreRedoLogNamesAClaimedRecord(t *testing.T) {
	for _, mode := range []prims.SemaphoreMode{prims.SemaphoreOwned, prims.SemaphoreTransferable} {
		t.Run(mode.String(), func(t *testing.T) {
			a := newArena(t, nil)
			stopped := semStoppedAt(t, a, "arena.slotrecord.pushed", mode)
			s, err := prims.AttachSemaphore(a, "s", nil)
			require.NoError(t, err)
			semDiesGranting(t, a, s)
			s.Release(1)
			require.EqualValues(t, 2, s.State().Free)
			stopped.Cont(t)
			stopped.Await(t)
			stopped.Kill(t)
			alone(t, a, 1)
			sound(t, a)
		})
	}
}

// A reaper reads a transferable Semaphore before the first record is on the list. It leaves the Semaphore
// alone, although others use it by the time the reaper would take the queue lock: the wait that is queued
// then is served before later ones.
func TestSemaphoreReaperWithoutBase(t *testing.T) {
	a := newArena(t, nil)
	semStoppedAt(t, a, "arena.slotrecord.claimed", prims.SemaphoreTransferable)
	o, err := objectNamed(a, "s")
	require.NoError(t, err)
	repair := prims.BeginRepairOfSemaphore(a, o)
	s, err := prims.AttachSemaphore(a, "s", nil)
	require.NoError(t, err)
	other := semOther(t, a)
	require.Empty(t, semDo(t, other, semOrder{Verb: "acquire", N: 2}).Err)
	other.Send(semOrder{ID: 1, Verb: "acquire", N: 2})
	semQueued(t, a, s, 1)
	repair()
	s.Release(2)
	require.False(t, s.TryAcquire(2), "the wait that is queued comes first")
	var r semAnswer
	other.Recv(t, &r)
	require.Empty(t, r.Err)
}

// semStoppedAt is the process that opens the Semaphore "s" first, and is stopped at a point.
func semStoppedAt(t *testing.T, a *arena.Arena, point string, mode prims.SemaphoreMode) *proctest.Proc {
	p := proctest.Start(t, "semaphore/first", proctest.Params(semFirst{nameOf(a), mode}),
		proctest.Env("SHMSYNC_CRASHPOINT_STOP="+point), proctest.Dump(func() string { return words(a) }))
	p.AwaitStop(t)
	return p
}

// semDiesGranting has a process die while it grants a permit to a wait of this process, which gets the permit.
func semDiesGranting(t *testing.T, a *arena.Arena, s *prims.Semaphore) {
	victim := proctest.Start(t, "semaphore", proctest.Params(nameOf(a)), proctest.Env("SHMSYNC_CRASHPOINT=monitor.commit.begun"))
	victim.Await(t)
	require.Empty(t, semDo(t, victim, semOrder{Verb: "acquire", N: 2}).Err)
	got := make(chan error, 1)
	go func() { got <- s.AcquireContext(t.Context(), 1) }()
	semQueued(t, a, s, 1)
	victim.Send(semOrder{ID: 1, Verb: "release", N: 2})
	victim.WaitSignal(t, syscall.SIGKILL)
	require.NoError(t, <-got)
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

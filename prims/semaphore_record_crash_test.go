//go:build linux && crashpoint

package prims_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestSemaphoreRecordAtEveryPoint: a process dies, or is stopped, while it makes its slot record of a
// Semaphore. This record is the first one of the Semaphore, or a later one. Other processes can still open
// the Semaphore, wait, and get permits, and the Semaphore can be deleted.
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

// TestSemaphoreTwoDeaths checks that the wait node of a dead process is not freed while it is in the queue. The test
// process reaps a first dead process, and is about to free the memory of that process. Then a second process dies. Its
// last record, which queues its wait, has taken effect, but is not carried out yet.
func TestSemaphoreTwoDeaths(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 1, nil)
	require.True(t, s.TryAcquire(1))
	first := semOther(t, a)
	// The second process makes two records. The first one makes it the owner of the share of its slot, and the next one
	// queues its wait.
	second := proctest.Start(t, "semaphore", proctest.Params(nameOf(a)), proctest.Env("SHMSYNC_CRASHPOINT=record.commit.named:2"))
	second.Await(t)
	second.Stop(t) // so that the second process does not take part in the reap of the first
	var id arenakernel.ParticipantID
	for p := range a.Participants() {
		if int(p.PID) == second.Pid() {
			id = arenakernel.ParticipantID(p.ID())
		}
	}
	require.NotZero(t, id)
	died := make(chan struct{})
	// The point is passed twice. At the first pass this process counts the death, and at the second it frees
	// the memory.
	crashpoint.ArmFunc("arena.finish.taken", 2, func() {
		defer close(died)
		second.Cont(t)
		second.Send(semOrder{ID: 1, Verb: "acquire", N: 1})
		second.WaitSignal(t, syscall.SIGKILL)
		require.True(t, (*arenakernel.Arena)(a).Dead(id))
	})
	defer crashpoint.Disarm()
	first.Kill(t)
	<-died
	alone(t, a, 1)
	s.Release(1)
	ctx, cancel := context.WithTimeout(t.Context(), timeout())
	defer cancel()
	require.NoError(t, s.AcquireContext(ctx, 1), words(a))
	s.Release(1)
	eventually(t, "no node in use", func() string { return words(a) }, func() bool { return ownNodes(a) <= 1 })
	sound(t, a)
}

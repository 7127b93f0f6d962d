//go:build linux

package arenatest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/prims"
)

type job struct{ ID uint64 }

// work is the program under test: it does one job of the queue.
func work(jobs *prims.Queue[job], do func(j job)) error {
	l, err := jobs.Lease()
	if err != nil {
		return err
	}
	do(l.Item)
	l.Ack()
	return nil
}

func openJobs(t *testing.T, a *arena.Arena) *prims.Queue[job] {
	jobs, err := prims.OpenQueue[job](a, "jobs", 16, nil)
	require.NoError(t, err)
	return jobs
}

// A job of a worker that dies is done by another worker.
func TestJobOfADeadWorkerIsDoneByAnother(t *testing.T) {
	w := arenatest.New(t, nil)
	victim, survivor := w.JoinVictim("worker 1"), w.Join("worker 2")
	theirs, mine := openJobs(t, victim), openJobs(t, survivor)
	require.NoError(t, mine.Put(job{1}))
	require.NoError(t, mine.Put(job{2}))

	var done []uint64
	require.NoError(t, work(theirs, func(job) { w.Kill(victim) }))
	for range 2 {
		require.NoError(t, work(mine, func(j job) { done = append(done, j.ID) }))
	}
	require.ElementsMatch(t, []uint64{1, 2}, done)
	require.Zero(t, mine.Len())
}

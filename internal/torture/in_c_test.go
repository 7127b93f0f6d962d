//go:build linux

package torture

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/include"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestPlanOfVictimsInC checks that victims in C have only jobs of dataJobs, and that a plan lets a victim die in a
// rollback only if the parent kills the victim.
func TestPlanOfVictimsInC(t *testing.T) {
	for _, only := range []uint64{soundJobs, mustJobs("mutex", "tx"), mustJobs("tx", "rwtx")} {
		inC := 0
		for i := range 1000 {
			v := victimOf(1, i, only)
			if !v.c {
				require.Zero(t, v.step)
				continue
			}
			inC++
			require.NotZero(t, v.jobs)
			require.Zero(t, v.jobs&^(only&dataJobs), v)
			if v.outcome >= outcomeExec {
				require.Zero(t, v.step, v)
			}
		}
		if only&^dataJobs == 0 {
			require.InDelta(t, 500, inC, 60)
		} else {
			require.InDelta(t, 125, inC, 40)
		}
	}
}

func TestSourceInC(t *testing.T) {
	proctest.CheckSourceInC(t, workerSource, include.Header, pageFlags())
}

// TestResidentsInC checks that the first resident is a Go program, and the second resident, too, if some jobs have no
// workers in C.
func TestResidentsInC(t *testing.T) {
	inC := func(x *torturer) (numbers []int) {
		for worker := range tortureResidents {
			if x.residesInC(worker) {
				numbers = append(numbers, worker)
			}
		}
		return numbers
	}
	require.Equal(t, []int{1, 3, 5, 7}, inC(&torturer{inC: new(os.File), only: mustJobs("tx", "synchronized")}))
	require.Equal(t, []int{2}, inC(&torturer{inC: new(os.File), only: soundJobs}))
	require.Empty(t, inC(&torturer{only: mustJobs("tx")})) // no compiler
}

// TestTurnsOfResidentInCAreMeasured checks that the parent measures each operation of a resident in C once, and
// reports an operation that took too long.
func TestTurnsOfResidentInCAreMeasured(t *testing.T) {
	page := &torturePage{bound: 1e6, workers: 1}
	p := &party{page: page, label: "resident 0 in C", worker: &page.worker[0]}
	f := &p.worker.finished
	now := shmsync.Monotonic()
	for i, took := range []int64{100, 2e6, 300} {
		turn := &f.turn[i]
		turn.from.Store(now)
		turn.to.Store(now + took)
		turn.of.Store(tortureThreads*3 + 1)
		f.n.Add(1)
	}
	of := &tortured{done: make(chan struct{})}
	close(of.done)
	p.measureFinished(of, 1) // begins with operation 1; operation 0 counts as measured
	turns := stats.NewHist(page.histogram(tortureTurns))
	require.EqualValues(t, 2, turns.TotalCount())
	require.EqualValues(t, 2e6, p.worker.worst[3].Load())
	require.EqualValues(t, 1, p.worker.long.Load())
	require.Regexp(t, "^resident 0 in C: goroutine 1 was at spinlock for 2ms", page.failures()[0])
}

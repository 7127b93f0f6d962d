//go:build linux

package load

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// drowsy is a bench.Token that needs no second thread: Await returns the answer to the last Pass. If every is 4, for
// example, each fourth call of Await sleeps.
type drowsy struct {
	page  *control.Page
	last  uint32
	every int // 0: never
	waits int
}

const (
	drowsyWaits = 200 * lookStrideLeast
	drowsyNap   = 1000
)

func (d *drowsy) Pass(v uint32) { d.last = v }

func (d *drowsy) Await() uint32 {
	d.waits++
	if d.every > 0 && d.waits%d.every == 0 {
		control.SleepUntil(shmsync.Monotonic() + drowsyNap)
	}
	if d.waits == drowsyWaits {
		d.page.Phase.Store(control.PhaseStop)
	}
	return d.last + 1
}

// TestHandoffTellsWhoSlept checks that the metric "slept" is the share of the sampled round trips in which thread 0
// slept.
func TestHandoffTellsWhoSlept(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for every, want := range map[int]float64{0: 0, 1: 1, 2: 0.5, 4: 0.25} {
		p, err := control.NewPage(1)
		require.NoError(t, err)
		p.Phase.Store(control.PhaseMeasure)
		p.Started.Store(1)
		p.Control.Threads = 1
		th := &thread{Worker: &bench.Worker{Page: p}, locked: true}
		th.slot, th.counts = p.Slot(0)
		th.view = &drowsy{page: p, every: every}
		require.NoError(t, workHandoff(th))

		rep := &bench.Repetition{Status: bench.StatusOK}
		Collect(rep, &bench.Cell{Scenario: bench.ScenarioByName("handoff")}, p)
		require.Empty(t, rep.Reason)
		require.InDelta(t, drowsyWaits/lookStrideLeast, th.slot.Metrics[metricLooked], 1)
		// The tolerance is needed because the runtime may interrupt the thread in a wait in which drowsy does not
		// sleep.
		require.InDelta(t, want, rep.Metrics["slept"], 0.1, "one in %d", every)
		require.EqualValues(t, drowsyWaits, th.slot.Ops)
		require.EqualValues(t, drowsyWaits-th.slot.Metrics[metricLooked], stats.NewHist(th.counts).TotalCount(), "sampled round trips are not in the histogram")
		require.NoError(t, p.Close())
	}
}

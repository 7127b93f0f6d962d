//go:build linux

package main

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// drowsy is a token that answers itself, and gives up the CPU in one of so many waits.
type drowsy struct {
	page  *page
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
		sleepUntil(shmsync.Monotonic() + drowsyNap)
	}
	if d.waits == drowsyWaits {
		d.page.phase.Store(phaseStop)
	}
	return d.last + 1
}

// A look tells hand-overs in which the receiver slept from those in which it did not.
func TestHandoffTellsWhoSlept(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for every, want := range map[int]float64{0: 0, 1: 1, 2: 0.5, 4: 0.25} {
		p, err := newPage(1)
		require.NoError(t, err)
		p.phase.Store(phaseMeasure)
		p.started.Store(1)
		p.control.threads = 1
		th := &thread{worker: &worker{page: p}, locked: true}
		th.slot, th.counts = p.slot(0)
		th.view = &drowsy{page: p, every: every}
		require.NoError(t, workHandoff(th))

		rep := &repetition{Status: statusOK}
		rep.collect(&cell{Scenario: scenarioByName("handoff")}, p)
		require.Empty(t, rep.Reason)
		require.InDelta(t, drowsyWaits/lookStrideLeast, th.slot.metrics[metricLooked], 1)
		// A wait that does not sleep may still be interrupted by the runtime.
		require.InDelta(t, want, rep.Metrics["slept"], 0.1, "one in %d", every)
		require.EqualValues(t, drowsyWaits, th.slot.ops)
		require.EqualValues(t, drowsyWaits-th.slot.metrics[metricLooked], newHist(th.counts).TotalCount(), "who is looked at is not timed")
		require.NoError(t, p.close())
	}
}

// It is known of every peer in Go, and of no other.
func TestHandoffSaysWhoSlept(t *testing.T) {
	code, out, errs := shmbench(t, "handoff", "--prim=shmsync:futex,go:pipe,in-process:chan", "--place=any", "--gap=100us",
		"--time=20ms", "--warmup=2ms", "--count=1", "--format=json", "--cc=none")
	require.Zero(t, code, errs)
	for _, c := range parseDocument(t, out).Cells {
		if c.Scenario != "handoff" {
			continue
		}
		got := c.values("slept")
		if c.Subject == "in-process:chan" {
			require.Empty(t, got)
			continue
		}
		require.Len(t, got, 1, c.Subject)
		require.GreaterOrEqual(t, got[0], 0.0)
		require.LessOrEqual(t, got[0], 1.0)
	}
}

//go:build linux

package load

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// TestEachLineIsChecked checks that a wrong word in any cache line is found, both by a holder and at the end.
func TestEachLineIsChecked(t *testing.T) {
	for k := 1; k < 8; k++ {
		p, err := control.NewPage(1)
		require.NoError(t, err)
		p.Shape.Lines, p.Counter = 8, 5
		s, _ := p.Slot(0)
		s.PID, s.Total = 1, 5
		s.State.Store(control.SlotDone)
		check := func() (violations uint64, rep *bench.Repetition) {
			th := &thread{Worker: &bench.Worker{Page: p}, slot: s}
			th.checkLines(p.Scratch(), 8, 5)
			rep = &bench.Repetition{Status: bench.StatusOK}
			Collect(rep, &bench.Cell{Scenario: bench.ScenarioByName("lock"), Procs: 1, Threads: 1}, p)
			return s.Violations, rep
		}
		for i := 1; i < 8; i++ {
			p.Scratch().Counts[i*lineWords] = 5
		}
		violations, rep := check()
		require.Zero(t, violations)
		require.Equal(t, bench.StatusOK, rep.Status, rep.Reason)
		p.Scratch().Counts[k*lineWords] = 4
		checkLinesInTheEnd(rep, p)
		require.Equal(t, bench.StatusViolation, rep.Status)
		violations, _ = check()
		require.EqualValues(t, 1, violations)
		require.NoError(t, p.Close())
	}
}

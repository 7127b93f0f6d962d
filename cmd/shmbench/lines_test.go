//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Critical sections of many lines end with all of them counted, in Go and in C; a lock
// that does not exclude is found out.
func TestLinesUnderALock(t *testing.T) {
	requireCC(t)
	args := []string{"lock", "--place=any", "--procs=2", "--threads=2", "--time=20ms", "--warmup=2ms", "--count=1", "--think=0", "--format=json"}
	code, out, errs := shmbench(t, append(args, "--prim=shmsync:mutex,c:robust,in-process:sync.Mutex", "--cs=0", "--lines=1,8,512")...)
	require.Zero(t, code, errs)
	require.Len(t, parseDocument(t, out).Cells, 9)
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, statusOK, c.Status, c.Key)
		require.Contains(t, []string{"1", "8", "512"}, c.Params["lines"], c.Key)
	}
	code, out, errs = shmbench(t, append(args, "--prim=test:open", "--cs=2us", "--lines=8", "--time=200ms", "--cc=none")...)
	require.Equal(t, exitViolation, code, errs)
	require.Contains(t, out, "under the lock")
}

// All lines are looked at, by each holder and in the end.
func TestEachLineIsChecked(t *testing.T) {
	for k := 1; k < 8; k++ {
		p, err := newPage(1)
		require.NoError(t, err)
		p.shape.Lines, p.counter = 8, 5
		s, _ := p.slot(0)
		s.pid, s.total = 1, 5
		s.state.Store(slotDone)
		check := func() (violations uint64, rep *repetition) {
			th := &thread{worker: &worker{page: p}, slot: s}
			th.checkLines(p.scratch(), 8, 5)
			rep = &repetition{Status: statusOK}
			rep.collect(&cell{Scenario: scenarioByName("lock"), Procs: 1, Threads: 1}, p)
			return s.violations, rep
		}
		for i := 1; i < 8; i++ {
			p.scratch().counts[i*lineWords] = 5
		}
		violations, rep := check()
		require.Zero(t, violations)
		require.Equal(t, statusOK, rep.Status, rep.Reason)
		p.scratch().counts[k*lineWords] = 4
		rep.lines(p)
		require.Equal(t, statusViolation, rep.Status)
		violations, _ = check()
		require.EqualValues(t, 1, violations)
		require.NoError(t, p.close())
	}
}

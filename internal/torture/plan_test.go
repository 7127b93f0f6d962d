//go:build linux

package torture

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTorturePlan checks that the seed alone determines the plan, and that a plan has victims with each outcome and
// each job.
func TestTorturePlan(t *testing.T) {
	plan := func(seed uint64, only ...string) string {
		var out bytes.Buffer
		require.NoError(t, Run(t.Context(), &Options{Processes: 4, Residents: 2, Deaths: 1000, Seed: seed, Only: only, DryRun: true, Out: &out}))
		return out.String()
	}
	require.Equal(t, plan(5), plan(5))
	require.NotEqual(t, plan(5), plan(6))
	for f := range outcomes {
		require.Contains(t, plan(1), f.String())
	}
	for i := range jobs {
		if !strings.HasPrefix(jobs[i].name, "test:") {
			require.Contains(t, plan(1), jobs[i].name)
		}
	}
	require.NotContains(t, plan(1), "test:")
	require.Contains(t, plan(1), "in C, or at step")
	require.NotContains(t, plan(1, "mutex"), "in C")
	require.NotContains(t, plan(1, "mutex"), "queue")
}

func TestCovered(t *testing.T) {
	require.Zero(t, covered())
	require.Equal(t, int64(35), covered([]lapse{{0, 10}, {40, 50}}, []lapse{{5, 25}, {10, 12}}))
}

func TestSpans(t *testing.T) {
	var s spans
	parts := func(from, to int64) (sum int64) {
		s.each(from, to, func(a, b int64) {
			require.LessOrEqual(t, from, a)
			require.LessOrEqual(t, b, to)
			sum += b - a
		})
		return sum
	}
	require.Zero(t, parts(1, 1000))
	s.end(s.begin(100), 200)
	open := s.begin(300)
	require.Equal(t, int64(100+700), parts(1, 1000))
	require.Equal(t, int64(50+100), parts(150, 400))
	s.end(open, 310)
	require.Equal(t, int64(100+10), parts(1, 1000))
	for i := range int64(2 * tortureSpans) { // twice as many as the ring buffer keeps
		s.end(s.begin(2000+10*i), 2001+10*i)
	}
	require.Zero(t, parts(1, 1000))
	require.Equal(t, int64(tortureSpans), parts(1, 1<<40))
}

// TestParentThatDidNotRunFindsNoHang checks that the parent reports no hang after a long time in which the parent
// itself did not run.
func TestParentThatDidNotRunFindsNoHang(t *testing.T) {
	x := &torturer{asked: &Options{Timeout: 50 * time.Millisecond}, page: new(torturePage)}
	looks := 0
	require.NoError(t, x.until("it ends", nil, func() bool {
		if looks++; looks == 2 {
			<-time.After(500 * time.Millisecond) // longer than until waits
		}
		return looks == 4
	}))
	require.Equal(t, 4, looks)
}

func TestFaultWithoutItsTextIsReported(t *testing.T) {
	p := new(torturePage)
	p.fault("a turn was lost")
	p.faults.Add(1) // as if a worker found a second fault, and was killed before it wrote the text
	texts := p.failures()
	require.Len(t, texts, 2)
	require.Equal(t, "a turn was lost", texts[0])
	require.Contains(t, texts[1], "ended before it had written")
}

//go:build linux

package load

import (
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/stats"
)

// fakeClock is a clock that advances only while a goroutine waits or works.
type fakeClock struct{ at int64 }

func (c *fakeClock) now() int64          { return c.at }
func (c *fakeClock) sleepUntil(ns int64) { c.at = max(c.at, ns) }

// stalledRun serves 20,000 requests at 1 kHz. Each request takes 10 µs, except one, which takes a second longer.
func stalledRun() (fromDue, fromBegun *hdrhistogram.Histogram) {
	const requests, stallAt, second = 20_000, 7_000, 1_000_000_000
	open, closed := make([]uint64, stats.HistBuckets), make([]uint64, stats.HistBuckets)
	c := &fakeClock{at: 5}
	p := pace{next: 5, every: 1_000_000}
	for i := range requests {
		due, begun := p.once(c, func() {
			if c.at += 10_000; i == stallAt {
				c.at += second
			}
		})
		stats.Record(open, due)
		stats.Record(closed, begun)
	}
	return stats.NewHist(open), stats.NewHist(closed)
}

// With a thousand requests per second, a stall of a second delays a thousand requests. An open loop, which measures
// from the due time, sees that. A closed loop sees one late request.
func TestOpenLoopAvoidsCoordinatedOmission(t *testing.T) {
	open, closed := stalledRun()
	const stall = 1e9
	of := func(h *hdrhistogram.Histogram, q float64) float64 {
		v, ok := stats.Quantile(h, q, stats.TailMin)
		require.True(t, ok)
		return v
	}
	require.InEpsilon(t, stall, of(open, 0.999), 0.03)
	require.Greater(t, of(open, 0.99), 0.7*stall)
	require.Less(t, of(open, 0.5), 0.001*stall)
	require.Less(t, of(closed, 0.999), 0.001*stall, "the closed loop does not see it")
	require.InEpsilon(t, stall, float64(closed.Max()), 0.01, "but once")

	// The samples that the closed loop has missed can be estimated from the rate at which it should have made
	// requests.
	replayed := corrected(closed, 1_000_000)
	require.InEpsilon(t, of(open, 0.999), of(replayed, 0.999), 0.03)
	require.InEpsilon(t, of(open, 0.99), of(replayed, 0.99), 0.1)
	require.InDelta(t, 21_000, replayed.TotalCount(), 20)
}

func TestPaceTellsWhatIsBehind(t *testing.T) {
	c := &fakeClock{}
	p := pace{next: 100, every: 100}
	p.once(c, func() { c.at += 350 })
	require.EqualValues(t, 450, c.at)
	require.EqualValues(t, 2, p.behind(c.at), "of 200, 300 and 400 the first is about to begin")
	require.Zero(t, p.behind(150))
}

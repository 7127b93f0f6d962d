//go:build linux

package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/stats"
)

// killed adds a made-up crash cell. The parameters owned and told are the shortest times until a survivor owns the
// lock, and until it learns of the death, in µs. In each round, each kill takes 1 µs longer than the previous one. If
// told is 0, the cell has no times until a survivor learned of the death.
func killed(t *testing.T, d *Document, subject string, rounds, kills int, owned, told int64) *Cell {
	t.Helper()
	encoded := func(from int64) string {
		if from == 0 {
			return ""
		}
		counts := make([]uint64, stats.HistBuckets)
		for i := range int64(kills) {
			stats.Record(counts, (from+i)*1000)
		}
		b, err := stats.NewHist(counts).EncodeV2()
		require.NoError(t, err)
		return string(b)
	}
	values := make([]float64, rounds)
	for i := range values {
		values[i] = float64(owned * 1000)
	}
	d.add("crash", subject, map[string]string{"place": "llc", "kills": "41"}, map[string][]float64{"p50-ns": values, "max-ns": values})
	c := &d.Cells[len(d.Cells)-1]
	for i := range c.Reps {
		c.Reps[i].Hist, c.Reps[i].HistDiv, c.Reps[i].Told = encoded(owned), 1, encoded(told)
	}
	return c
}

// TestRecoveryHasATail checks that the advice has two times, each with p50, p99 and intervals: until the survivor
// learns of a death, and until it owns the lock. The advice also has the time of a robust mutex in C.
func TestRecoveryHasATail(t *testing.T) {
	d := synthetic(t, "two-socket")
	killed(t, d, "c:robust", 12, 41, 80, 0)
	killed(t, d, "shmsync:mutex", 12, 41, 300, 200)
	a := adviceOf(t, d, "R10")
	for _, want := range []string{
		"owned again after p50 320µs [3", ", p99 340µs [3", "], of 492 kills",
		"told of the death after p50 220µs [2", "c:robust is owned again after p50 100µs [", "a time-out below 340µs",
	} {
		require.Contains(t, a.Text, want)
	}
	require.Contains(t, strings.Join(a.Evidence, "\n"), "told of the death: p50 220µs")

	page := pageOf(t, d)
	require.Contains(t, page, "<td>shmsync:mutex</td><td>told of the death</td>")
	require.Contains(t, page, "<td>shmsync:mutex</td><td>owns the lock</td>")
	var table bytes.Buffer
	writeRecovery(&table, d)
	require.Equal(t, 1+1+3, strings.Count(table.String(), "\n")-1, table.String())
	require.Regexp(t, `shmsync:mutex +owns the lock +320µs +320µs \[3\d+µs, 3\d+µs\] +340µs \[3\d+µs, 340µs\] +492\n`, table.String())
	for line := range strings.Lines(table.String()) {
		require.LessOrEqual(t, len([]rune(line)), TableWidth+1, line)
	}
}

// TestRecoveryOfFewKills checks that the report says how many kills p99 needs if there are too few. Kills of disturbed
// rounds count only if all rounds were disturbed.
func TestRecoveryOfFewKills(t *testing.T) {
	d := synthetic(t, "two-socket")
	c := killed(t, d, "shmsync:mutex", 12, 41, 300, 200)
	for i := range 2 {
		c.Reps[i].Dirty = true
	}
	a := adviceOf(t, d, "R10")
	require.Contains(t, a.Text, "of 410 kills; p99 needs 441 kills")
	require.Contains(t, a.Text, "p90 3")
	require.NotContains(t, a.Text, "time-out")
	for i := range c.Reps {
		c.Reps[i].Dirty = true
	}
	all, err := c.recoveries()
	require.NoError(t, err)
	require.Equal(t, 492, all[0].Kills, "no round is clean")
	c.Reps[0].Hist = "no histogram"
	require.Contains(t, adviceOf(t, d, "R10").Text, "from the kill of an owner to the next")
}

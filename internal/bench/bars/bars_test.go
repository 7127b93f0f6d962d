//go:build linux

package bars

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/madeup"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/bench/subjects"
)

// judged returns the result for a bar whose subject and peer have made-up repetitions.
func judged(t *testing.T, b Bar, subject, peer []float64, status string) Result {
	t.Helper()
	o := madeup.Options()
	var results []*bench.Result
	sides := []struct {
		cell   func(*plan.Options) (*bench.Cell, error)
		values []float64
		status string
	}{{b.subjectCell, subject, status}, {b.peerCell, peer, bench.StatusOK}}
	if b.Peer == "" {
		sides = sides[:1]
	}
	for _, side := range sides {
		c, err := side.cell(o)
		require.NoError(t, err)
		c.Skip = ""
		res := &bench.Result{Cell: c}
		for _, v := range side.values {
			counts := make([]uint64, stats.HistBuckets)
			for range 100 {
				stats.Record(counts, int64(v))
			}
			res.Reps = append(res.Reps, &bench.Repetition{Status: bench.StatusOK, Div: 1, Hist: stats.NewHist(counts),
				Metrics: map[string]float64{"p50-ns": v, "ops/s": v, "cpu-ns": v, "disturbed": v, "jain": 1}})
		}
		if side.status != bench.StatusOK {
			res.Reps[0].Status = side.status
		}
		results = append(results, res)
	}
	return b.judge(results, o)
}

func TestJudge(t *testing.T) {
	three := func(v float64) []float64 { return []float64{v, v * 1.01, v * 0.99} }
	six := func(v float64) []float64 { return slices.Repeat(three(v), 2) }
	crash := Bar{Scenario: "crash", Subject: "shmsync:mutex", Peer: "go:waitv-floor", Limit: 1.6, Least: 300}
	lock := Bar{Scenario: "lock", Subject: "shmsync:mutex", Peer: "c:robust", Limit: 1.1, Note: "jain"}
	idle := Bar{Scenario: "idle", Subject: "shmsync:mutex", Limit: 5e6}
	p99 := Bar{Scenario: "crash", Subject: "shmsync:mutex", Limit: 1e6, Pooled: 0.99}
	still := Bar{Scenario: "waiters", Subject: "shmsync:mutex-one", Metric: "disturbed", AtZero: true}
	both := Bar{Scenario: "readers", Subject: "shmsync:rwmutex", Peer: "shmsync:rwmutex", Limit: 1.1,
		Cell: bench.Cell{Place: bench.PlaceCross, Procs: 2}, PeerCell: &bench.Cell{Place: bench.PlaceCross, Procs: 1}}
	shown := Bar{Scenario: "crash", Subject: "shmsync:mutex", Peer: "c:robust"}
	for _, c := range []struct {
		name          string
		bar           Bar
		subject, peer []float64
		status, want  string
	}{
		{"a ratio within its limit", crash, six(150), six(100), bench.StatusOK, VerdictPass},
		{"a ratio beyond its limit", crash, six(200), six(100), bench.StatusOK, VerdictFail},
		{"too few samples", crash, []float64{150, 150}, six(100), bench.StatusOK, VerdictOpen},
		{"a hung subject fails", crash, six(150), six(100), bench.StatusHung, VerdictFail},
		{"a violation fails", crash, six(150), six(100), bench.StatusViolation, VerdictFail},
		{"more is better", lock, six(120), six(100), bench.StatusOK, VerdictPass},
		{"less is worse", lock, six(90), six(100), bench.StatusOK, VerdictFail},
		{"a figure of its own", idle, three(4e6), nil, bench.StatusOK, VerdictPass},
		{"a figure of its own, too large", idle, three(6e6), nil, bench.StatusOK, VerdictFail},
		{"a pooled quantile", p99, three(9e5), nil, bench.StatusOK, VerdictPass},
		{"a pooled quantile, too large", p99, three(2e6), nil, bench.StatusOK, VerdictFail},
		{"none at all", still, []float64{0, 0}, nil, bench.StatusOK, VerdictPass},
		{"one too many", still, []float64{1, 1}, nil, bench.StatusOK, VerdictFail},
		{"a subject beside itself", both, six(105), six(100), bench.StatusOK, VerdictPass},
		{"a subject beside itself, slower", both, six(120), six(100), bench.StatusOK, VerdictFail},
		{"too few rounds", lock, three(200), three(100), bench.StatusOK, VerdictOpen},
		{"the interval contains the limit", lock, []float64{100, 105, 110, 115, 120, 125, 130}, slices.Repeat([]float64{100}, 7), bench.StatusOK, VerdictOpen},
		{"for information", shown, six(200), six(100), bench.StatusOK, VerdictShown},
		{"no peer", crash, six(150), nil, bench.StatusOK, VerdictPending},
	} {
		got := judged(t, c.bar, c.subject, c.peer, c.status)
		require.Equal(t, c.want, got.Verdict, "%s: %+v", c.name, got)
	}
}

func TestBarsName(t *testing.T) {
	for _, b := range bars {
		sc := bench.ScenarioByName(b.Scenario)
		require.NotNil(t, sc, b.Name)
		for _, name := range []string{b.Subject, b.Peer} {
			if name == "" {
				continue
			}
			s, err := subjects.Find(name)
			require.NoError(t, err, b.Name)
			require.Contains(t, s.Scenarios, b.Scenario, b.Name)
		}
	}
}

// A bar passes only if its whole interval is within the limit.
func TestVerdict(t *testing.T) {
	r := stats.Interval{Center: 0.9, Lo: 0.8, Hi: 1.1}
	require.Equal(t, VerdictPass, verdict(r, 1.1, false))
	require.Equal(t, VerdictOpen, verdict(r, 1, false))
	require.Equal(t, VerdictOpen, verdict(r, 0.85, false))
	require.Equal(t, VerdictFail, verdict(r, 0.7, false))
	require.Equal(t, VerdictPass, verdict(r, 0.8, true))
	require.Equal(t, VerdictOpen, verdict(r, 0.9, true))
	require.Equal(t, VerdictOpen, verdict(r, 1, true))
	require.Equal(t, VerdictFail, verdict(r, 1.2, true))
}

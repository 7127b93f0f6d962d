//go:build linux

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/bars"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/madeup"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// madeUp returns a Run with made-up results.
func madeUp(t *testing.T) *Run {
	t.Helper()
	o, results, err := madeup.Results()
	require.NoError(t, err)
	return &Run{Env: host.Read(o.CPUs), Warnings: []string{"made up"}, Command: []string{"shmbench"}, Options: o, Results: results}
}

func TestBenchTextParses(t *testing.T) {
	r := madeUp(t)
	var b bytes.Buffer
	d, err := NewDocument(r)
	require.NoError(t, err)
	require.NoError(t, writeBench(&b, d))
	var results, units int
	reader := benchfmt.NewReader(&b, "bench")
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.Result:
			results++
			base, parts := rec.Name.Parts()
			require.True(t, slices.ContainsFunc(bench.Scenarios, func(s *bench.Scenario) bool { return s.Bench == string(base) }), base)
			for _, p := range parts {
				require.Contains(t, string(p), "=", rec.Name)
			}
			require.Equal(t, r.Env.Kernel, rec.GetConfig("kernel"))
			require.NotEmpty(t, rec.Values)
		case *benchfmt.UnitMetadata:
			units++
			require.Equal(t, "better", rec.Key)
		case *benchfmt.SyntaxError:
			t.Fatal(rec)
		}
	}
	require.NoError(t, reader.Err())
	want := 0
	for _, res := range r.Results {
		for _, rep := range res.Reps {
			if rep.Status == bench.StatusOK {
				want++
			}
		}
	}
	require.Equal(t, want, results)
	require.Greater(t, units, 5)
}

func TestJSONRoundTrip(t *testing.T) {
	r := madeUp(t)
	d, err := NewDocument(r)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, d))
	var back Document
	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&back))
	require.Equal(t, d.Env, back.Env)
	require.Len(t, back.Cells, len(r.Results))
	first, err := json.Marshal(d)
	require.NoError(t, err)
	second, err := json.Marshal(back)
	require.NoError(t, err)
	require.JSONEq(t, string(first), string(second))

	h, err := hdrhistogram.Decode([]byte(back.Cells[0].Reps[0].Hist))
	require.NoError(t, err)
	original := r.Results[0].Reps[0].Hist
	require.Equal(t, original.TotalCount(), h.TotalCount())
	for _, q := range stats.Quantiles {
		require.Equal(t, original.ValueAtQuantile(q.Q*100), h.ValueAtQuantile(q.Q*100))
	}
}

func TestTableFits(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteTable(&b, madeUp(t)))
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), TableWidth, line)
	}
	require.Contains(t, b.String(), "skipped: not today")
	require.Contains(t, b.String(), bench.StatusHung)
}

func TestFormatMetric(t *testing.T) {
	for _, c := range []struct {
		metric string
		v      float64
		want   string
	}{
		{"p50-ns", 9.31, "9.31ns"}, {"p50-ns", 61_234, "61.2µs"}, {"max-ns", 2e9, "2s"}, {"ops/s", 12_345_678, "12.3M"},
		{"jain", 0.987, "0.99"}, {"B/waiter", 18_000, "18k"}, {"n", 300, "300"}, {"scan-MB/s", 12_345.6, "12346"}, {"as-asked-%", 99.5, "99.5 %"},
	} {
		require.Equal(t, c.want, formatMetric(c.metric, c.v))
	}
}

// A bar without a peer has the name of its subject in the table.
func TestTableOfBars(t *testing.T) {
	var text bytes.Buffer
	writeBars(&text, []bars.Result{
		{Name: "waiters", Subject: "shmsync:mutex-each", Metric: "disturbed", Verdict: bars.VerdictPass, Value: &stats.Interval{N: 2}},
		{Name: "pair", Subject: "shmsync:mutex", Peer: "in-process:sync.Mutex", Limit: 1.3, Verdict: bars.VerdictPending, Reason: "not here"},
	})
	for _, want := range []string{"mutex-each", "÷ sync.Mutex", "≤ 1.30", "pair ÷ sync.Mutex: not here", "1 pass, 1 pending"} {
		require.Contains(t, text.String(), want)
	}
}

// TestInterruptedRunSaysSo checks that the report of an interrupted run has a warning with the number of missing
// repetitions.
func TestInterruptedRunSaysSo(t *testing.T) {
	r := madeUp(t)
	r.End(false, 10)
	require.Equal(t, StateComplete, r.State)
	before := len(r.Warnings)
	done := 0
	for _, res := range r.Results {
		done += len(res.Reps)
	}
	r.End(true, done+7)
	d, err := NewDocument(r)
	require.NoError(t, err)
	require.Equal(t, StateInterrupted, d.State)
	require.Len(t, d.Warnings, before+1)
	require.Contains(t, d.Warnings[before], fmt.Sprintf("interrupted: %d of %d repetitions", done, done+7))
}

//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
)

// madeUp is a report without a run behind it.
func madeUp(t *testing.T) *report {
	t.Helper()
	o := testOptions()
	o.Count, o.Brief, o.Few = 8, true, true
	cells, err := planCells(o, scenarioNames()...)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(3, 3))
	r := &report{Env: readEnvironment(o.CPUs), Warnings: []string{"made up"}, Command: []string{"shmbench"}, Options: o}
	for i, c := range cells {
		res := &result{Cell: c}
		if i == 3 {
			c.Skip = "not today"
		}
		for range o.Count {
			rep := &repetition{Status: statusOK, Div: 1, Metrics: map[string]float64{"n": 5000}}
			counts := make([]uint64, histBuckets)
			for range 5000 {
				record(counts, 50_000+rng.Int64N(20_000))
			}
			rep.Hist = newHist(counts)
			for _, m := range append([]string{c.Scenario.unit}, c.Scenario.others...) {
				rep.Metrics[m] = 1 + 1e6*rng.Float64()
			}
			if c.Skip == "" {
				res.Reps = append(res.Reps, rep)
			}
		}
		r.Results = append(r.Results, res)
	}
	r.Results[5].Reps[2] = &repetition{Status: statusHung, Reason: "no end\nin sight"}
	return r
}

func TestBenchTextParses(t *testing.T) {
	r := madeUp(t)
	var b bytes.Buffer
	d, err := newDocument(r)
	require.NoError(t, err)
	require.NoError(t, writeBench(&b, d))
	var results, units int
	reader := benchfmt.NewReader(&b, "bench")
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.Result:
			results++
			base, parts := rec.Name.Parts()
			require.True(t, slices.ContainsFunc(scenarios, func(s *scenario) bool { return s.bench == string(base) }), base)
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
			if rep.Status == statusOK {
				want++
			}
		}
	}
	require.Equal(t, want, results)
	require.Greater(t, units, 5)
}

func TestJSONRoundTrip(t *testing.T) {
	r := madeUp(t)
	d, err := newDocument(r)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, writeJSON(&b, d))
	var back document
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
	for _, q := range quantiles {
		require.Equal(t, original.ValueAtQuantile(q.q*100), h.ValueAtQuantile(q.q*100))
	}
}

func TestTableFits(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeTable(&b, madeUp(t)))
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), tableWidth, line)
	}
	require.Contains(t, b.String(), "skipped: not today")
	require.Contains(t, b.String(), statusHung)
}

func TestRatioIntervals(t *testing.T) {
	many, err := ratioInterval([]float64{.9, 1, 1.1, 1.2, .8, 1.05, .95, 1.15, .85, 1})
	require.NoError(t, err)
	require.Equal(t, kindRank, many.Kind)
	require.InDelta(t, 1, many.Center, 0.01)
	require.Less(t, many.Lo, many.Center)
	require.Greater(t, many.Hi, many.Center)
	few, err := ratioInterval([]float64{2, 1, 3})
	require.NoError(t, err)
	require.Equal(t, interval{2, 1, 3, 3, kindRange}, few)
	_, err = ratioInterval(nil)
	require.Error(t, err)
}

func TestQuantileRatio(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	slow, fast := make([]uint64, histBuckets), make([]uint64, histBuckets)
	for range 400 {
		record(slow, 2_000_000+rng.Int64N(200_000))
		record(fast, 1_000_000+rng.Int64N(100_000))
	}
	q, err := quantileRatio(newHist(slow), newHist(fast), 0.99, 1)
	require.NoError(t, err)
	require.InDelta(t, 2, q.Center, 0.05)
	require.LessOrEqual(t, q.Lo, q.Center)
	require.GreaterOrEqual(t, q.Hi, q.Center)
	require.Less(t, q.Hi-q.Lo, 0.2)
	_, err = quantileRatio(newHist(slow), newHist(), 0.99, 1)
	require.Error(t, err)
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

//go:build linux

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// judged gives the verdict on a bar after made-up repetitions of its subject and
// its peer.
func judged(t *testing.T, b bar, subject, peer []float64, status string) barResult {
	t.Helper()
	o := testOptions()
	r := &report{Options: o}
	sides := []struct {
		cell   func(*options) (*cell, error)
		values []float64
		status string
	}{{b.subjectCell, subject, status}, {b.peerCell, peer, statusOK}}
	if b.Peer == "" {
		sides = sides[:1]
	}
	for _, side := range sides {
		c, err := side.cell(o)
		require.NoError(t, err)
		c.Skip = ""
		res := &result{Cell: c}
		for _, v := range side.values {
			counts := make([]uint64, histBuckets)
			for range 100 {
				record(counts, int64(v))
			}
			res.Reps = append(res.Reps, &repetition{Status: statusOK, Div: 1, Hist: newHist(counts),
				Metrics: map[string]float64{"p50-ns": v, "ops/s": v, "cpu-ns": v, "disturbed": v, "jain": 1}})
		}
		if side.status != statusOK {
			res.Reps[0].Status = side.status
		}
		r.Results = append(r.Results, res)
	}
	return b.judge(r, o)
}

func TestJudge(t *testing.T) {
	three := func(v float64) []float64 { return []float64{v, v * 1.01, v * 0.99} }
	crash := bar{Scenario: "crash", Subject: "shmsync:mutex", Peer: "go:waitv-floor", Limit: 1.6, Least: 300}
	lock := bar{Scenario: "lock", Subject: "shmsync:mutex", Peer: "c:robust", Limit: 1.1, Note: "jain"}
	idle := bar{Scenario: "idle", Subject: "shmsync:mutex", Limit: 5e6}
	p99 := bar{Scenario: "crash", Subject: "shmsync:mutex", Limit: 1e6, Pooled: 0.99}
	still := bar{Scenario: "waiters", Subject: "shmsync:mutex-one", Metric: "disturbed", AtZero: true}
	both := bar{Scenario: "readers", Subject: "shmsync:rwmutex", Peer: "shmsync:rwmutex", Limit: 1.1,
		Cell: cell{Place: placeCross, Procs: 2}, PeerCell: &cell{Place: placeCross, Procs: 1}}
	shown := bar{Scenario: "crash", Subject: "shmsync:mutex", Peer: "c:robust"}
	for _, c := range []struct {
		name          string
		bar           bar
		subject, peer []float64
		status, want  string
	}{
		{"a ratio within its limit", crash, three(150), three(100), statusOK, verdictPass},
		{"a ratio beyond its limit", crash, three(200), three(100), statusOK, verdictFail},
		{"too few samples", crash, []float64{150, 150}, three(100), statusOK, verdictOpen},
		{"a hung subject fails", crash, three(150), three(100), statusHung, verdictFail},
		{"a violation fails", crash, three(150), three(100), statusViolation, verdictFail},
		{"more is better", lock, three(120), three(100), statusOK, verdictPass},
		{"less is worse", lock, three(90), three(100), statusOK, verdictFail},
		{"a figure of its own", idle, three(4e6), nil, statusOK, verdictPass},
		{"a figure of its own, too large", idle, three(6e6), nil, statusOK, verdictFail},
		{"a pooled quantile", p99, three(9e5), nil, statusOK, verdictPass},
		{"a pooled quantile, too large", p99, three(2e6), nil, statusOK, verdictFail},
		{"none at all", still, []float64{0, 0}, nil, statusOK, verdictPass},
		{"one too many", still, []float64{1, 1}, nil, statusOK, verdictFail},
		{"a subject beside itself", both, three(105), three(100), statusOK, verdictPass},
		{"a subject beside itself, slower", both, three(120), three(100), statusOK, verdictFail},
		{"for information", shown, three(200), three(100), statusOK, verdictShown},
		{"no peer", crash, three(150), nil, statusOK, verdictPending},
	} {
		got := judged(t, c.bar, c.subject, c.peer, c.status)
		require.Equal(t, c.want, got.Verdict, "%s: %+v", c.name, got)
	}
}

func TestBarsRun(t *testing.T) {
	code, out, errs := shmbench(t, "bars", "--only=100k|sync.Mutex", "--waiters=200", "--time=5ms", "--warmup=1ms", "--count=2",
		"--format=json", "--cc=none")
	require.Contains(t, []int{exitOK, exitUsage}, code, errs)
	d := parseDocument(t, out)
	picked, err := pickBars("100k|sync.Mutex")
	require.NoError(t, err)
	require.Len(t, d.Bars, len(picked))
	for _, b := range d.Bars {
		require.Contains(t, []string{verdictPass, verdictFail, verdictOpen, verdictPending}, b.Verdict)
		if b.Peer == "" {
			require.Equal(t, verdictPass, b.Verdict, b)
		}
	}
	var text bytes.Buffer
	writeBars(&text, d.Bars)
	require.Contains(t, text.String(), "mutex-each")

	code, _, errs = shmbench(t, "bars", "--only=no such bar")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "no bar matches")
	code, _, _ = shmbench(t, "bars", "--only=(")
	require.Equal(t, exitUsage, code)
}

//go:build linux

package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/bars"
	"github.com/shmsync/shmsync/internal/bench/report"
)

func TestBarsRun(t *testing.T) {
	picked, err := bars.Pick("100k|sync.Mutex")
	require.NoError(t, err)
	misses := func(b bars.Result) bool { return b.Peer == "" && b.Verdict != bars.VerdictPass }
	var d report.Document
	until(func() bool { // on a busy machine, the 200 waiters may have more threads than the bar allows
		code, out, errs := shmbench(t, "bars", "--only=100k|sync.Mutex", "--waiters=200", "--time=5ms", "--warmup=1ms", "--count=2",
			"--format=json", "--cc=none")
		require.Contains(t, []int{exitOK, exitUsage}, code, errs)
		d = parseDocument(t, out)
		require.Len(t, d.Bars, len(picked))
		return !slices.ContainsFunc(d.Bars, misses)
	})
	for _, b := range d.Bars {
		require.Contains(t, []string{bars.VerdictPass, bars.VerdictFail, bars.VerdictOpen, bars.VerdictPending}, b.Verdict)
		require.False(t, misses(b), b)
	}

	code, _, errs := shmbench(t, "bars", "--only=no such bar")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "no bar matches")
	code, _, _ = shmbench(t, "bars", "--only=(")
	require.Equal(t, exitUsage, code)
}

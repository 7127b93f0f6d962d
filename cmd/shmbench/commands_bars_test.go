//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/bars"
)

func TestBarsRun(t *testing.T) {
	code, out, errs := shmbench(t, "bars", "--only=100k|sync.Mutex", "--waiters=200", "--time=5ms", "--warmup=1ms", "--count=2",
		"--format=json", "--cc=none")
	require.Contains(t, []int{exitOK, exitUsage}, code, errs)
	d := parseDocument(t, out)
	picked, err := bars.Pick("100k|sync.Mutex")
	require.NoError(t, err)
	require.Len(t, d.Bars, len(picked))
	for _, b := range d.Bars {
		require.Contains(t, []string{bars.VerdictPass, bars.VerdictFail, bars.VerdictOpen, bars.VerdictPending}, b.Verdict)
		if b.Peer == "" {
			require.Equal(t, bars.VerdictPass, b.Verdict, b)
		}
	}

	code, _, errs = shmbench(t, "bars", "--only=no such bar")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "no bar matches")
	code, _, _ = shmbench(t, "bars", "--only=(")
	require.Equal(t, exitUsage, code)
}

//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// It is known of every peer in Go, and of no other.
func TestHandoffSaysWhoSlept(t *testing.T) {
	code, out, errs := shmbench(t, "handoff", "--prim=shmsync:futex,go:pipe,in-process:chan", "--place=any", "--gap=100us",
		"--time=20ms", "--warmup=2ms", "--count=1", "--format=json", "--cc=none")
	require.Zero(t, code, errs)
	for _, c := range parseDocument(t, out).Cells {
		if c.Scenario != "handoff" {
			continue
		}
		got := c.Values("slept")
		if c.Subject == "in-process:chan" {
			require.Empty(t, got)
			continue
		}
		require.Len(t, got, 1, c.Subject)
		require.GreaterOrEqual(t, got[0], 0.0)
		require.LessOrEqual(t, got[0], 1.0)
	}
}

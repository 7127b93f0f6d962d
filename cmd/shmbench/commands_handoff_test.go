//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/report"
)

// Each handoff cell in Go reports how often its process slept, except the cell of in-process:chan.
func TestHandoffSaysWhoSlept(t *testing.T) {
	slept := func(c report.Cell) bool {
		return c.Scenario != "handoff" || c.Subject == "in-process:chan" || len(c.Values("slept")) > 0
	}
	d := measured(t, slept, "handoff", "--prim=shmsync:futex,go:pipe,in-process:chan", "--place=any", "--gap=100us",
		"--warmup=2ms", "--count=1", "--cc=none")
	for _, c := range d.Cells {
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

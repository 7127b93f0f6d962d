//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// In an arena without counters the age of a hold is known from below as soon as a process waits
// for it, and unknown before.
func TestHoldAgeWithoutCounters(t *testing.T) {
	for _, kind := range []string{"mutex", "rw", "synchronized"} {
		t.Run(kind, func(t *testing.T) {
			name := testArena(t)
			alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
			op := "lock " + kind
			if kind == "synchronized" {
				op = "update synchronized"
			}
			alice.begins(op, "x")
			eventually(t, "the hold", func() bool {
				_, d := shmctlJSON(t, "locks", name)
				return len(d.Holds) == 1 && d.Holds[0].AgeNs == nil
			})
			bob.begins(op, "x")
			eventually(t, "the age of the hold", func() bool {
				_, d := shmctlJSON(t, "locks", name)
				return len(d.Holds) == 1 && d.Holds[0].AgeNs != nil && d.Holds[0].AtLeast
			})
			require.Contains(t, soon(t, exitTrouble, "locks", "--older=1ns", name), "≥")
			require.Contains(t, soon(t, exitOK, "show", name, "x"), "≥")
			require.Contains(t, soon(t, exitOK, "top", "-n", "1", name), "≥")
		})
	}
}

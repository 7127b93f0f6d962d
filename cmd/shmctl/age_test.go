//go:build linux

package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
)

// In an arena without counters, shmctl does not know the age of a hold. Once another process waits for the hold to end,
// shmctl prints the age of this wait as a lower bound.
func TestHoldAgeWithoutCounters(t *testing.T) {
	for _, ops := range [][2]string{
		{"lock mutex", "lock mutex"}, {"lock rw", "lock rw"}, {"update synchronized", "update synchronized"}, {"lock cohort", "lock cohort"},
		{"lock fair", "lock fair"}, {"lock multi", "lock multi"}, {"acquire semaphore", "acquire semaphore"}, {"rlock rw", "lock rw"}, {"lock rw", "rlock rw"},
		{"lock spin", "lock spin"}, {"lock rwspin", "lock rwspin"}, {"lock rwspin", "rlock rwspin"}, {"rlock rwspin", "lock rwspin"}, {"lease queue", "lease queue"},
	} {
		t.Run(ops[0], func(t *testing.T) {
			name := testArena(t)
			alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
			const n = 3 // serves as the key of the MultiLock, and as the number of all permits of the Semaphore
			// A writer that waits for readers has a hold, too.
			hold := func() []diagnose.Hold {
				_, d := shmctlJSON(t, "locks", name)
				return slices.DeleteFunc(d.Holds, func(h diagnose.Hold) bool { return h.Mode == arena.HoldClosing })
			}
			if ops[0] == "lease queue" {
				alice.does("put queue", "x")
			}
			alice.begins(ops[0], "x", n)
			eventually(t, "the hold", func() bool {
				h := hold()
				return len(h) == 1 && h[0].AgeNs == nil
			})
			bob.begins(ops[1], "x", n)
			eventually(t, "the age of the hold", func() bool {
				h := hold()
				return len(h) == 1 && h[0].AgeNs != nil && h[0].AtLeast
			})
			require.Contains(t, soon(t, exitTrouble, "locks", "--older=1ns", name), "≥")
			require.Contains(t, soon(t, exitOK, "show", name, "x"), "≥")
			require.Contains(t, soon(t, exitOK, "top", "-n", "1", name), "≥")
		})
	}
}

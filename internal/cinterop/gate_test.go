//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// runGate runs a verb of gate.c, which ends by SIGALRM where it hangs.
func runGate(t *testing.T, verb, name string) {
	t.Helper()
	out, err := exec.Command(program(t, "gate.c"), verb, name).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A peer that writes the admission word of a joiner in C keeps it out, and not in a loop.
func TestOpenInCRefusesAForeignAdmission(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	defer a.Close()
	runGate(t, "admission", name)
}

// An errno value that on_first gives is the result of the open, whatever it means elsewhere.
func TestErrorOfOnFirstInC(t *testing.T) { runGate(t, "first", unusedName(t)) }

// A child that is forked while another thread removes an arena does not keep the gate.
func TestForkWhileRemovingInC(t *testing.T) { runGate(t, "fork", unusedName(t)) }

//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// runHangs runs a verb of hangs.c, which ends by SIGALRM where it hangs.
func runHangs(t *testing.T, verb string) {
	t.Helper()
	name := coreArena(t, 2<<20)
	out, err := exec.Command(program(t, "hangs.c"), verb, name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	sound(t, name)
}

// A cancellation that is pending when a thread begins to wait acts after the call, not in it.
func TestCancelWaitsForTheCall(t *testing.T) { runHangs(t, "cancel-waits") }

// After a cancellation in open or close, the next open of the process does not hang.
func TestCancelLeavesOpenUsable(t *testing.T) { runHangs(t, "cancel-open") }

// A fork and an open do not wait for a close that waits for a call, and the child is no participant.
func TestForkWhileClosing(t *testing.T) { runHangs(t, "fork-close") }

// A process with one thread is a target of fences at once, another one later: the registration
// takes long, and a process that is killed meanwhile cannot end.
func TestRegistrationDelaysNobody(t *testing.T) {
	runHangs(t, "register-alone")
	runHangs(t, "register-late")
}

// A thread forks at any moment while another opens or closes the arena.
func TestForkWhileOpening(t *testing.T) { runHangs(t, "fork-opening") }

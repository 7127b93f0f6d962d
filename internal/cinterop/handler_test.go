//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A signal handler may release, set and count on an object while the thread that it interrupts is inside a call
// on the same object. Nobody waits for the interrupted thread, and no call is lost.
func TestCallsFromSignalHandlers(t *testing.T) {
	out, err := exec.Command(program(t, "handler.c"), unusedName(t)).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

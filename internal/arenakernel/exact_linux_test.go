package arenakernel

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestExactSleepsAreUndone: a thread has its former timer slack again after undo.
func TestExactSleepsAreUndone(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack := func() int {
		ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		require.NoError(t, err)
		return ns
	}
	before := slack()
	if before <= 1 {
		t.Skip("needs a thread whose timer slack is more than a nanosecond")
	}
	undo := ExactSleeps()
	require.Equal(t, 1, slack())
	undo()
	require.Equal(t, before, slack())
}

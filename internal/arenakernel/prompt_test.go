//go:build linux

package arenakernel

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDeathWatcherIsPrompt: while an arena is open, the thread that notices deaths has a short time
// slice. The threads of the application keep their time slices.
func TestDeathWatcherIsPrompt(t *testing.T) {
	slice := func(tid int) uint64 {
		attr, err := unix.SchedGetAttr(tid, 0)
		require.NoError(t, err)
		return attr.Runtime
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	usual := slice(0)
	if usual == 0 {
		t.Skip("needs a kernel that gives each thread a slice of its own (Linux 6.12)")
	}
	ta := newTestArena(t, 4)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	deathWatcher := int(a.u32(a.slot(a.mySlot) + slotTID).Load())
	require.Less(t, slice(deathWatcher), usual)
	require.Equal(t, usual, slice(0))
	require.NoError(t, a.Close())
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", deathWatcher)); err == nil {
		require.Equal(t, usual, slice(deathWatcher))
	}
}

//go:build linux

package cinterop

import "testing"

// The function that shmsync_wait_hook sets runs during each wait that lasts. The wait keeps its place in the queue
// meanwhile. The function can end the wait. If the awaited event happens at the same time, the event takes precedence.
func TestWaitHook(t *testing.T) {
	t.Parallel()
	runC(t, "hook.c", unusedName(t))
}

// The function of shmsync_wait_hook runs during an open that waits for the on_first of another process, or for an open of
// another thread.
func TestWaitHookOfAnOpen(t *testing.T) { runC(t, "openhook.c", unusedName(t), unusedName(t)) }

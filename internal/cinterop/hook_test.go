//go:build linux

package cinterop

import "testing"

// A program sets a function with shmsync_wait_hook. The function runs during each long wait, and the wait keeps its
// place in the queue. The function can end the wait. If the awaited event happens at the same time, the wait succeeds.
func TestWaitHook(t *testing.T) {
	t.Parallel()
	runC(t, "hook.c", unusedName(t))
}

// The function that a program sets with shmsync_wait_hook runs during an open that waits. The open may wait for the
// on_first of another process, or for an open of another thread.
func TestWaitHookOfAnOpen(t *testing.T) { runC(t, "openhook.c", unusedName(t), unusedName(t)) }

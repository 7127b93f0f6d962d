//go:build linux

package cinterop

import "testing"

// Each verb tests an RWMutex with an undo log while the writers' mutex and the gate belong to different processes. In
// the order of the verbs:
//
//   - A reader finds the mutex held.
//   - A process leaves.
//   - The holder of the mutex dies.
//   - A call gives up while a reaper arrives.
//   - A reader gives up while a reaper arrives.
//   - A handle is opened while the reaper works.
//   - A peer rewrites the gate all the time.
//   - The arena is closed during a call that need not wait, and the close waits for the rollback of the call.
//   - The arena is closed during such a call, which leaves the rollback to the close.
func TestRWMutexRollbackMoments(t *testing.T) {
	for _, verb := range []string{"reader", "leaves", "another", "gives up", "reader gives up", "open", "rewriter", "counted", "uncounted"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "rollbacks.c", name, verb)
			sound(t, name)
		})
	}
}

//go:build linux

package cinterop

import "testing"

// Each verb tests an RWMutex with an undo log at a moment when the writers' mutex and the gate belong to
// different processes: a reader finds the mutex held, a process leaves, the holder of the mutex dies, a call
// or a reader gives up while a reaper arrives, a handle is opened beside the reaper, or a peer rewrites the gate all the
// time. The last two verbs close the arena beside calls that need not wait: the close waits for the rollback of
// such a call, or the call leaves the rollback to the close.
func TestRWMutexRollbackMoments(t *testing.T) {
	for _, verb := range []string{"reader", "leaves", "another", "gives up", "reader gives up", "open", "rewriter", "counted", "uncounted"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "rollbacks.c", name, verb)
			sound(t, name)
		})
	}
}

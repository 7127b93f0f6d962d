//go:build linux

package cinterop

import "testing"

// A call in C decides by several loads, and another participant changes a word right before one of them: before the
// first load in one run, before the second load in the next run, and so on. The result of the call must be one that the
// call may have before the change or after it.
func TestChangesBetweenTheLoadsOfACallInC(t *testing.T) {
	for _, verb := range []string{
		"who",          // a participant dies, or a joiner takes its slot over
		"rows",         // a joiner takes the slot of a participant that the call describes
		"recorded",     // a joiner takes the slot of a dead participant, and gives it back
		"undated",      // the process that has marked a death is killed
		"nobody began", // a death is recorded
		"heard",        // a death is recorded
		"kept",         // an object begins to be freed
		"closed",       // the maker of an object publishes it
		"stale",        // another participant claims a block
		"off queue",    // a record ends a wait
		"left",         // a wait node is freed and used again
		"resolved",     // the same
		"freed",        // another participant frees a wait node
		"unshared",     // another thread ends an opening
		"arrived",      // another process ends or breaks the phase of a Barrier
		"given up",     // a peer changes a word before each attempt of a reaper
		"overtaken",    // a peer changes the commit word before each change of a reaper
		"listed",       // another process recovers a key of a MultiLock
	} {
		t.Run(verb, func(t *testing.T) { runC(t, "between.c", newArena(t), verb) })
	}
}

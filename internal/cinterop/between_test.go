//go:build linux

package cinterop

import "testing"

// TestChangesBetweenTheLoadsOfACallInC checks calls in C that load several words. In each run, another participant
// changes shared words right before one of these loads: before the first load in the first run, before the second load
// in the second run, and so on. The call must return a result that is right before the change or after it. The comment
// of each verb says what the change is.
func TestChangesBetweenTheLoadsOfACallInC(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{
		"who",          // a participant dies, or a joiner takes its slot over
		"rows",         // a joiner takes the slot of a participant that the call describes
		"recorded",     // a joiner takes the slot of a dead participant, and gives it back
		"undated",      // the process that has marked a death is killed
		"nobody began", // a death is recorded
		"heard",        // a death is recorded
		"kept",         // a participant begins to free an object
		"closed",       // the maker of an object publishes it
		"stale",        // another participant claims a block
		"off queue",    // a record ends a wait
		"left",         // another participant frees a wait node, and then uses it for another wait
		"resolved",     // another participant frees a wait node, and then uses it for another wait
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

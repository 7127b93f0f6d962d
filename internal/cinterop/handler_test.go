//go:build linux

package cinterop

import "testing"

// A signal handler may release, set and count on an object while the thread that it interrupts is inside a call
// on the same object. Nobody waits for the interrupted thread, and no call is lost.
func TestCallsFromSignalHandlers(t *testing.T) {
	runC(t, "handler.c", unusedName(t))
}

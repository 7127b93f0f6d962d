//go:build linux

package cinterop

import "testing"

// A signal handler may release, set and count on an object while the interrupted thread is inside a call on the same
// object. No process waits for the interrupted thread, and no call of the handler is lost.
func TestCallsFromSignalHandlers(t *testing.T) {
	t.Parallel()
	runC(t, "handler.c", unusedName(t))
}

//go:build linux

package cinterop

import "testing"

// The system refuses descriptors, locks or threads for a time. Calls in C then fail, and say why. When the system no
// longer refuses, the process gets what it needs.
func TestScarceInC(t *testing.T) {
	for _, verb := range []string{
		"first-open", "few-descriptors", "one-descriptor", "no-locks", "no-gate", "other-proc", "strange-file-system", "no-threads", "last-thread", "last-close",
		"stuck-file", "no-flock", "sweep", "locked-memory", "guarded-block",
	} {
		t.Run(verb, func(t *testing.T) { runC(t, "scarce.c", verb, unusedName(t)) })
	}
}

//go:build linux

package cinterop

import "testing"

// C calls while descriptors, locks or threads are refused for a time. They fail, and say why; nothing that a process
// was refused once is missing for ever.
func TestScarceInC(t *testing.T) {
	for _, verb := range []string{
		"first-open", "few-descriptors", "one-descriptor", "no-locks", "strange-file-system", "no-threads", "last-thread", "last-close",
		"stuck-file", "no-flock", "sweep", "locked-memory",
	} {
		t.Run(verb, func(t *testing.T) { runC(t, "scarce.c", verb, unusedName(t)) })
	}
}

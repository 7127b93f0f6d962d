//go:build linux

package cinterop

import (
	"testing"

	"github.com/shmsync/shmsync"
)

// scarceNeeds maps a verb to the kernel feature that it needs.
var scarceNeeds = map[string]*shmsync.Feature{"probes": shmsync.FeatureWaitV, "probe-of-fences": shmsync.FeatureMembarrier}

// The system refuses descriptors, locks or threads for a time. Calls in C then fail, and say why. When the system no
// longer refuses, the process gets what it needs.
func TestScarceInC(t *testing.T) {
	for _, verb := range []string{
		"first-open", "few-descriptors", "one-descriptor", "no-locks", "no-gate", "other-proc", "strange-file-system", "no-threads", "last-thread", "last-close",
		"stuck-file", "no-flock", "sweep", "locked-memory", "guarded-block", "probes", "probe-of-fences", "other-entry",
	} {
		t.Run(verb, func(t *testing.T) {
			if f := scarceNeeds[verb]; f != nil && !f.Have() {
				t.Skipf("needs the kernel feature %s: %v", f.Name(), f.Check())
			}
			runC(t, "scarce.c", verb, unusedName(t))
		})
	}
}

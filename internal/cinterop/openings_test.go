//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// An opening in C ends once, and not while the death watcher checks the object. The watcher itself does not wait for the
// end of its own check. A call that comes after the end does not count itself.
func TestEndOfAnOpening(t *testing.T) {
	for _, verb := range []string{"check", "begins", "reset"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			out, err := exec.Command(program(t, "openings.c"), name, verb).CombinedOutput()
			require.NoError(t, err, "%s", out)
			sound(t, name)
		})
	}
}

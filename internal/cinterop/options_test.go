//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The options of every object have two flags: one to create only, and one to open only. An options struct begins
// with its size, so that the library understands programs with an older or newer header.
func TestOptions(t *testing.T) {
	for _, verb := range []string{"flags", "numbers", "sizes", "arenas", "race"} {
		t.Run(verb, func(t *testing.T) {
			name := unusedName(t)
			if verb != "arenas" { // this verb makes its own arenas
				name = coreArena(t, 4<<20)
			}
			out, err := exec.Command(program(t, "options.c"), verb, name).CombinedOutput()
			require.NoError(t, err, "%s", out)
			if verb != "arenas" {
				sound(t, name)
			}
		})
	}
}

//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The options of every object have flags that create only, and that open only what exists. They
// begin with their size, so that a program of an older or a newer header is understood.
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

//go:build linux

package cinterop

import "testing"

// The options of every object have two flags: one to create only, and one to open only. An options struct begins
// with its size, so that the library understands programs with an older or newer header.
func TestOptions(t *testing.T) {
	for _, verb := range []string{"flags", "numbers", "sizes", "arenas", "race"} {
		t.Run(verb, func(t *testing.T) {
			name := unusedName(t)
			if verb != "arenas" { // this verb makes its own arenas
				name = coreArena(t, 4<<20)
			}
			runC(t, "options.c", verb, name)
			if verb != "arenas" {
				sound(t, name)
			}
		})
	}
}

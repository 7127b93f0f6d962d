//go:build linux

package cinterop

import (
	"testing"
)

// A C program is killed after it has changed an Event and before it has woken a waiter, or while it waits. The
// other processes go on.
func TestKillEvent(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, verb := range []string{"set", "reset"} {
			t.Run(verb+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, lang, name, "waits")
				off := x.do(t, "event.open", "e", 2)
				wait, back := "event.wait", "event.reset"
				if verb == "reset" {
					wait, back = "event.waitreset", "event.set"
					x.do(t, "event.set", "e")
				}
				waits := x.start(t, wait, "e")
				eventually(t, "it sleeps", name, func() bool { return x.do(t, "sleepers", "-", off) == 1 })
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=event.turn.before_wake")
				victim.do(t, "event.open", "e", 2)
				victim.start(t, "event."+verb, "e")
				victim.ends(t)
				y := newAgent(t, lang, name, "turns it back")
				y.do(t, "event.open", "e", 2)
				y.do(t, back, "e")
				waits.must(t)
				sound(t, name)
			})
		}
		t.Run("announced/"+lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "sets")
			x.do(t, "event.open", "e", 2)
			victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=eventcount.wait.announced")
			victim.do(t, "event.open", "e", 2)
			victim.start(t, "event.wait", "e")
			victim.ends(t)
			y := newAgent(t, lang, name, "waits")
			y.do(t, "event.open", "e", 2)
			waits := y.start(t, "event.wait", "e")
			x.do(t, "event.set", "e")
			waits.must(t)
			sound(t, name)
		})
	}
}

//go:build linux

package cinterop

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A C program is killed while it waits for the function of a Once, and while it takes over a call whose process
// has died.
func TestKillOnce(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, point := range []string{"once.wait.announced", "once.wait.woken"} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, lang, name, "runner")
				off := x.do(t, "once.open", "o")
				goOff := x.do(t, "event.open", "o-go")
				runs := x.blocked(t, goOff, 1, "once.do", "o")
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
				victim.do(t, "once.open", "o")
				victim.start(t, "once.nothing", "o")
				if point == "once.wait.woken" {
					eventually(t, "it sleeps", name, func() bool { return x.do(t, "sleepers", "-", off) == 1 })
				} else {
					victim.ends(t)
				}
				y := newAgent(t, lang, name, "waits")
				y.do(t, "once.open", "o")
				waits := y.start(t, "once.nothing", "o")
				x.do(t, "event.set", "o-go")
				if point == "once.wait.woken" {
					victim.ends(t)
				}
				runs.must(t)
				waits.must(t)
				require.EqualValues(t, 1, y.do(t, "once.isdone", "o"))
				sound(t, name)
			})
		}
		t.Run("once.reap.left/"+lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "dies")
			x.do(t, "once.open", "o")
			goOff := x.do(t, "event.open", "o-go")
			x.blocked(t, goOff, 1, "once.do", "o")
			victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=once.reap.left")
			victim.mortal = true
			victim.do(t, "once.open", "o") // only opens: a call that waits would take over before the reaper does
			x.kill(t)
			victim.ends(t)
			successor := newAgent(t, lang, name, "successor")
			successor.do(t, "once.open", "o")
			require.Zero(t, successor.do(t, "once.isdone", "o"))
			successor.do(t, "once.nothing", "o")
			require.EqualValues(t, 1, successor.do(t, "once.isdone", "o"))
			sound(t, name)
		})
	}
}

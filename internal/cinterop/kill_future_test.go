//go:build linux

package cinterop

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A C program is killed at each step of a Set of a Future, and at each step of a wait. The other processes go on.
func TestKillFuture(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, point := range []string{"future.set.decided", "future.end.before_wake"} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, lang, name, "waits")
				off := x.do(t, "future.open", "f")
				waits := x.start(t, "future.wait", "f")
				eventually(t, "it sleeps", name, func() bool { return x.do(t, "sleepers", "-", off) == 1 })
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
				victim.do(t, "future.open", "f")
				victim.start(t, "future.set", "f", 5)
				victim.ends(t)
				y := newAgent(t, lang, name, "comes late")
				y.do(t, "future.open", "f")
				require.EqualValues(t, 5, y.do(t, "future.wait", "f"))
				require.EqualValues(t, 5, waits.must(t))
				sound(t, name)
			})
		}
		for _, point := range []string{"eventcount.wait.announced", "eventcount.wait.woken"} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, lang, name, "sets")
				off := x.do(t, "future.open", "f")
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
				victim.do(t, "future.open", "f")
				victim.start(t, "future.wait", "f")
				if point == "eventcount.wait.woken" {
					eventually(t, "it sleeps", name, func() bool { return x.do(t, "sleepers", "-", off) == 1 })
				} else {
					victim.ends(t)
				}
				y := newAgent(t, lang, name, "waits")
				y.do(t, "future.open", "f")
				waits := y.start(t, "future.wait", "f")
				x.do(t, "future.set", "f", 5)
				if point == "eventcount.wait.woken" {
					victim.ends(t)
				}
				require.EqualValues(t, 5, waits.must(t))
				sound(t, name)
			})
		}
	}
}

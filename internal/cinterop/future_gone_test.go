//go:build linux

package cinterop

import (
	"syscall"
	"testing"
)

// A Reset waits until the dead producer can write no more, and only while the word names it. After that
// another participant may have the ID, and Reset would wait for the death of that one.
func TestFutureResetWaitsWhileTheWordNamesTheDead(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run(lang, func(t *testing.T) {
			const begun = 2 // round 1 has begun: another process has reset it
			name := newArena(t)
			x, victim := newAgent(t, lang, name, "survivor"), newAgent(t, "c", name, "victim", asynchronousIO)
			off := x.do(t, "future.open", "f")
			victim.do(t, "future.open", "f")
			victim.do(t, "future.claim", "f")
			victim.do(t, "gone.fork", "f")
			if err := victim.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			victim.ends(t)
			x.start(t, "future.wait", "f").fails(t, syscall.EOWNERDEAD)
			reset := x.start(t, "future.reset", "f")
			x.start(t, "futex.wait", "never", 1, 20).fails(t, syscall.ETIMEDOUT) // some time later
			overwrite(t, name, off, func(uint64) []uint64 { return []uint64{begun} })
			reset.fails(t, syscall.EBUSY)
			victim.in.Close() // ends its child
		})
	}
}

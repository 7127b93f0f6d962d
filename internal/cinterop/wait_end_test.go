//go:build linux

package cinterop

import "testing"

// The awaited event of a wait in C happens while the waiter is about to sleep. Before the waiter runs again, its
// deadline passes, or another thread closes the arena. The wait succeeds, because the event takes precedence. The
// exception is a wait for a lock or a Once during a close: it fails. The close could only leave the lock to the other
// processes as that of a dead holder.
func TestEventBeatsTheEndOfTheWaitInC(t *testing.T) {
	for _, scene := range []string{"queue get", "queue lease", "queue put", "futex", "once", "mutex", "spinlock", "rwmutex read", "rwmutex", "rwspinlock"} {
		for _, end := range []string{"deadline", "close"} {
			t.Run(scene+"/"+end, func(t *testing.T) {
				name := newArena(t)
				runC(t, "wait_end.c", name, scene, end)
				sound(t, name)
			})
		}
	}
}

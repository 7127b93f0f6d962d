//go:build linux

package cinterop

import "testing"

// The awaited event of a wait in C happens while the waiter is about to sleep. Before the waiter runs again, its
// deadline passes, or another thread closes the arena. The wait succeeds, because the event takes precedence. But
// during a close, a wait for a lock or a Once fails: the close could only leave the lock, or the turn of the Once, to
// other processes as that of a dead holder.
func TestEventBeatsTheEndOfTheWaitInC(t *testing.T) {
	t.Parallel()
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

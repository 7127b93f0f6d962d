//go:build linux

package cinterop

import "testing"

// What a wait in C waits for happens while the waiter is about to sleep. Then its deadline has passed, or another thread
// closes the arena, before the waiter runs again. The event takes precedence. Only a lock, and a turn of a Once, is not
// taken beside a close: the close would leave it to other processes as that of a dead holder.
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

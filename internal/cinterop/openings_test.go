//go:build linux

package cinterop

import "testing"

// An opening in C ends once, and not while the death watcher checks the object. The watcher itself does not wait for the
// end of its own check. A call that comes after the end does not count itself.
func TestEndOfAnOpening(t *testing.T) {
	for _, verb := range []string{"check", "begins", "reset"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "openings.c", name, verb)
			sound(t, name)
		})
	}
}

// A process closes its only handle of an object while another thread waits through the handle, and a peer ends the wait. The
// call keeps the object open until its last step. It gives back what only the closed handle could give back.
func TestOpeningEndsWithAWait(t *testing.T) {
	for _, verb := range []string{
		"store", "synchronized_begin", "rwspinlock", "put_batch", "lease", "multilock", "lockall",
		"mutex_begin", "mutex_timedbegin", "rwmutex_begin", "rwmutex_timedbegin",
	} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "endsbeside.c", name, verb)
			sound(t, name)
		})
	}
}

// A process closes its only handle of an object and deletes the object while a call has taken effect and has not made its
// wake. The rest of the call leaves the next object at this place as it is.
func TestLateCallChangesNoOtherObject(t *testing.T) {
	for _, verb := range []string{"mutex", "mutex, not biased", "mutex, checked", "rwmutex", "spinlock", "rwspinlock", "rwspinlock, read"} {
		t.Run(verb, func(t *testing.T) {
			runC(t, "late.c", newArena(t), verb)
		})
	}
}

// A thread closes a handle while a call through that handle has let others go on and is not over. The rest of the call
// does not read the handle.
func TestCloseBesideTheRestOfACall(t *testing.T) {
	for _, verb := range []string{"latch", "sequencer", "signal waker"} {
		t.Run(verb, func(t *testing.T) { runLate(t, verb) })
	}
}

// A trylock finds the death of the holder before the death watcher does, and another thread closes the handle after the call
// has taken the lock from the holder. The object stays open until the call returns.
func TestCloseBesideATryThatFindsADeath(t *testing.T) {
	for _, verb := range []string{"try mutex", "try reserved mutex", "try rwmutex", "try spinlock", "try rwspinlock", "read rwmutex", "read rwspinlock"} {
		t.Run(verb, func(t *testing.T) { runLate(t, verb) })
	}
}

// A holder dies, and no death watcher has marked the death. A C program that makes only calls that do not wait finds the
// death by itself.
func TestTryInCFindsTheDeathOfAHolder(t *testing.T) {
	for _, verb := range []string{"find semaphore", "find queue", "find lease", "find event"} {
		t.Run(verb, func(t *testing.T) { runLate(t, verb) })
	}
}

// A C program whose workers always have other work finds the queue of a producer that was stopped in the middle of its
// announcement.
func TestSignalWorkersInCFindWhatAStoppedProcessAnnounces(t *testing.T) {
	runLate(t, "stopped announcement")
}

// A reaper in C finds the owner of the whole count of a WaitGroup dead and is stopped. Meanwhile a new participant gets
// the ID of the owner, and the commit word gets its old value. The reaper does not mark the new participant dead.
func TestLateReaperOfAWaitGroupInCSparesTheLiving(t *testing.T) {
	runLate(t, "waitgroup")
}

// A handle of an RWMutex that is made while an unlock is between its two steps does not take the writers' mutex for an
// upgradable hold.
func TestOpenBesideAnUnlockInC(t *testing.T) { runLate(t, "opened") }

// A close of the last handle beside lock_upgradable leaves the hold to the next handle.
func TestCloseBesideLockUpgradableInC(t *testing.T) { runLate(t, "upgradable") }

func runLate(t *testing.T, verb string) {
	t.Helper()
	name := newArena(t)
	runC(t, "late.c", name, verb)
	sound(t, name)
}

// While the kernel has no memory for a wait for several objects, the wait does not spin. The error of a closed handle
// names the call.
func TestAwaitInC(t *testing.T) {
	for _, verb := range []string{"nomem", "closed"} {
		t.Run(verb, func(t *testing.T) {
			runC(t, "await.c", newArena(t), verb)
		})
	}
}

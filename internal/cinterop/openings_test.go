//go:build linux

package cinterop

import "testing"

// The last handle of an opening in C is closed while the death watcher checks the object. The opening ends once, and
// only after the check. The death watcher never waits for itself. A call that begins after the end of the opening
// fails, and the arena can still be closed.
func TestEndOfAnOpening(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"check", "begins", "reset"} {
		t.Run(verb, func(t *testing.T) {
			name := newArena(t)
			runC(t, "openings.c", name, verb)
			sound(t, name)
		})
	}
}

// A process closes its only handle of an object while a thread waits through the handle. Then a peer ends the wait. The
// call of the thread keeps the object open until its last step, and gives back everything that it has acquired.
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

// A call has taken effect, but has not made its wake yet. Its process closes the only handle and deletes the object,
// and another object takes the same place. The rest of the call does not change this other object.
func TestLateCallChangesNoOtherObject(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"mutex", "mutex, not biased", "mutex, checked", "rwmutex", "spinlock", "rwspinlock", "rwspinlock, read"} {
		t.Run(verb, func(t *testing.T) {
			runC(t, "late.c", newArena(t), verb)
		})
	}
}

// A call has let other threads go on, and one of them closes the handle before the call returns. The rest of the call
// does not read the handle.
func TestCloseBesideTheRestOfACall(t *testing.T) {
	for _, verb := range []string{"latch", "sequencer", "signal waker"} {
		t.Run(verb, func(t *testing.T) { runLate(t, verb) })
	}
}

// A trylock finds the death of the holder before the death watcher does, and takes the lock from the holder. Then
// another thread closes the handle. The object stays open until the call returns.
func TestCloseBesideATryThatFindsADeath(t *testing.T) {
	for _, verb := range []string{"try mutex", "try reserved mutex", "try rwmutex", "try spinlock", "try rwspinlock", "read rwmutex", "read rwspinlock"} {
		t.Run(verb, func(t *testing.T) { runLate(t, verb) })
	}
}

// A holder dies, and no death watcher has marked the death. A C program finds the death even if none of its calls
// waits.
func TestTryInCFindsTheDeathOfAHolder(t *testing.T) {
	for _, verb := range []string{"find semaphore", "find queue", "find lease", "find event"} {
		t.Run(verb, func(t *testing.T) { runLate(t, verb) })
	}
}

// A producer is stopped while it announces a queue. A C program finds the queue, although its workers always have other
// work.
func TestSignalWorkersInCFindWhatAStoppedProcessAnnounces(t *testing.T) {
	runLate(t, "stopped announcement")
}

// The owner of the whole count of a WaitGroup dies. A reaper in C finds the death, and is stopped. Meanwhile a new
// participant gets the ID of the owner, and the commit word gets its old value. When the reaper goes on, it does not
// mark the new participant dead.
func TestLateReaperOfAWaitGroupInCSparesTheLiving(t *testing.T) {
	runLate(t, "waitgroup")
}

// An unlock of an RWMutex has opened the gate and still has the writers' mutex. A handle that is opened at this moment
// does not take the writers' mutex for an upgradable hold.
func TestOpenBesideAnUnlockInC(t *testing.T) { runLate(t, "opened") }

// A thread closes the last handle while lock_upgradable is under way. The next handle has the upgradable hold.
func TestCloseBesideLockUpgradableInC(t *testing.T) { runLate(t, "upgradable") }

func runLate(t *testing.T, verb string) {
	t.Helper()
	name := newArena(t)
	runC(t, "late.c", name, verb)
	sound(t, name)
}

// A wait for several objects does not spin while the kernel has no memory for the wait. If one of the handles is
// closed, the text of the error names the call that waits.
func TestAwaitInC(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"nomem", "closed"} {
		t.Run(verb, func(t *testing.T) {
			runC(t, "await.c", newArena(t), verb)
		})
	}
}

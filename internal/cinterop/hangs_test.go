//go:build linux

package cinterop

import "testing"

// runHangs runs a verb of hangs.c. SIGALRM ends a verb that hangs.
func runHangs(t *testing.T, verb string) {
	t.Helper()
	name := coreArena(t, 2<<20)
	runC(t, "hangs.c", verb, name)
	sound(t, name)
}

// A cancellation (pthread_cancel) that is pending when a thread begins to wait takes effect only after the call.
func TestCancelWaitsForTheCall(t *testing.T) { runHangs(t, "cancel-waits") }

// After a thread was cancelled in an open or a close, the next open of the process does not hang.
func TestCancelLeavesOpenUsable(t *testing.T) { runHangs(t, "cancel-open") }

// Neither a fork nor an open waits for a close that waits for a call of another thread. The child of the fork is not a
// participant.
func TestForkWhileClosing(t *testing.T) { runHangs(t, "fork-close") }

// A process with one thread registers for membarrier at once. A process with more threads registers later, because the
// registration takes long, and would delay the end of a process that is killed meanwhile.
func TestRegistrationDelaysNobody(t *testing.T) {
	runHangs(t, "register-alone")
	runHangs(t, "register-late")
}

// A thread forks at any moment while another thread opens or closes the arena.
func TestForkWhileOpening(t *testing.T) { runHangs(t, "fork-opening") }

// A program registers handlers of forks before it first opens an arena. Its handlers may call the library, and may
// take a lock that another thread holds in a call of the library.
func TestForkHandlersOfTheProgram(t *testing.T) {
	for _, verb := range []string{"fork-reopen-child", "fork-reopen-parent", "fork-locked"} {
		t.Run(verb, func(t *testing.T) { runHangs(t, verb) })
	}
}

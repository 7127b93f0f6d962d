package arenakernel

import "golang.org/x/sys/unix"

// ExactSleeps makes the kernel end each sleep of the calling thread at its deadline. By default, the kernel may end a
// sleep up to 50 us later, to save wakes of the CPU. That is too much for a goroutine that waits until a dead
// participant is gone, because it pauses for only 50 us between its first two checks. The calling goroutine must be
// locked to its thread. The function undo restores the earlier setting. A thread with real-time priority needs no
// change.
func ExactSleeps() (undo func()) {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || slack <= 1 || unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) != nil {
		return func() {}
	}
	return func() { unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) }
}

package arenakernel

import "golang.org/x/sys/unix"

// ExactSleeps makes sleeps of the calling thread that have a deadline end when they should. Otherwise the kernel may
// end them up to 50 us later, to save wakes of the CPU. That is as long as the first pause between two checks whether a
// dead participant is gone. The calling goroutine must be locked to its thread. The function undo restores the earlier
// setting. A thread with real-time priority needs no change.
func ExactSleeps() (undo func()) {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || slack <= 1 || unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) != nil {
		return func() {}
	}
	return func() { unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) }
}

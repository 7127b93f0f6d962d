package shmsync

import "golang.org/x/sys/unix"

// ThreadID returns the ID of the calling thread in its own pid namespace. The result is useful only
// if the calling goroutine is locked to its thread.
func ThreadID() int { return unix.Gettid() }

// Yield lets another runnable thread of this CPU run, if there is one, and returns how many
// nanoseconds that took.
func Yield() int64 {
	start := Monotonic()
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return Monotonic() - start
}

// promptSlice is the shortest time slice that the scheduler grants, in nanoseconds.
const promptSlice = 1e5

// PromptThread asks the scheduler to run the calling thread soon after each wake, even on a CPU where another
// thread runs. It gives the calling thread a shorter time slice, but not a smaller share of the CPU. Among threads
// that have had less than their share, the scheduler prefers threads with shorter slices. Linux has such slices
// since 6.12, for threads of the ordinary scheduling policy. On other systems, PromptThread does nothing.
//
// The calling goroutine must be locked to its thread. The function undo restores the former slice.
func PromptThread() (undo func()) {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL || attr.Runtime <= promptSlice {
		return func() {}
	}
	was := attr.Runtime
	attr.Runtime = promptSlice
	if unix.SchedSetAttr(0, attr, 0) != nil {
		return func() {}
	}
	return func() {
		attr.Runtime = was
		unix.SchedSetAttr(0, attr, 0)
	}
}

package shmsync

import "golang.org/x/sys/unix"

// ThreadID is the calling thread's id in its own pid namespace. It means
// something only to a goroutine that is locked to its thread.
func ThreadID() int { return unix.Gettid() }

// Yield lets another runnable thread of this CPU run, if there is one, and
// reports how long that took in nanoseconds.
func Yield() int64 {
	start := Monotonic()
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return Monotonic() - start
}

// promptSlice is the shortest slice that the scheduler grants, in nanoseconds.
const promptSlice = 1e5

// PromptThread asks the scheduler to run the calling thread soon after each wake, even
// on a CPU that another thread has. It gives the calling thread a shorter slice: the
// scheduler prefers a thread with a shorter slice if the thread has had less than its
// share of the CPU. The share stays the same. Linux has such slices since 6.12, for
// threads of the ordinary policy; otherwise nothing happens. The calling goroutine must
// be locked to its thread. undo gives the thread its former slice.
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

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

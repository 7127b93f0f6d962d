package shmsync

import "golang.org/x/sys/unix"

// ThreadID is the calling thread's id in its own pid namespace. It means
// something only to a goroutine that is locked to its thread.
func ThreadID() int { return unix.Gettid() }

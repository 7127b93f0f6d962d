//go:build crashpoint

package crashpoint

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// dieHere kills the process and does not return.
func dieHere() {
	keepLocks()
	signalSelf(unix.SIGKILL)
	for {
		time.Sleep(time.Hour) // not select {}: the runtime might report a deadlock before the signal kills the process
	}
}

// stopHere stops the process and returns when it has been continued.
func stopHere() { signalSelf(unix.SIGSTOP) }

// signalSelf sends sig to the calling thread rather than to the process: a
// signal of the process may be taken by another thread while this one runs on
// for some instructions, a signal of the thread is taken on the way back from
// the system call. Both signals act on the whole process either way.
func signalSelf(sig unix.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), sig); err != nil {
		panic(fmt.Sprintf("crashpoint: tgkill(%v): %v", sig, err))
	}
}

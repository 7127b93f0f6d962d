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
		time.Sleep(time.Hour) // not select {}: before the signal arrives, the runtime might report a deadlock
	}
}

// stopHere stops the process and returns when it has been continued.
func stopHere() { signalSelf(unix.SIGSTOP) }

// signalSelf sends sig to the calling thread and not to the process, although the signal affects the whole process in
// both cases. If the signal were sent to the process, another thread might receive it while this thread executes
// further instructions. A signal that a thread sends to itself arrives before the system call returns.
func signalSelf(sig unix.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), sig); err != nil {
		panic(fmt.Sprintf("crashpoint: tgkill(%v): %v", sig, err))
	}
}

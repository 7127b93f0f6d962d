//go:build linux

package proctest

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Filter installs the seccomp program prog. From now on, prog decides for all threads which system calls this
// process may make. Only a child calls Filter, because a process cannot remove such a filter.
func Filter(prog []unix.SockFilter) error {
	const (
		setFilter   = 1 // SECCOMP_SET_MODE_FILTER
		synchronize = 1 // SECCOMP_FILTER_FLAG_TSYNC
	)
	runtime.LockOSThread() // the two calls have to be made by one thread
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	p := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	// SAFETY: the kernel reads p and what it points to, and keeps a copy.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, synchronize, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return errno
	}
	return nil
}

package shmsync

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// The features that the library probes for. The environment variable SHMSYNC_DISABLE has a comma-separated list of
// features that the library treats as absent. The variable is read once.
var (
	FeatureRobustList = &Feature{name: "robust", since: "2.6.17", probe: probeRobustList}
	FeatureWaitV      = &Feature{name: "waitv", since: "5.16", probe: probeWaitV}
	FeatureMembarrier = &Feature{name: "membarrier", since: "4.16", probe: probeMembarrier}
	FeatureOFDLock    = &Feature{name: "ofd", since: "3.15", probe: probeOFDLock}
	FeatureThreads    = &Feature{name: "threads", since: "5.16", probe: probeThreads}
)

// notSupported returns the error for a failed system call that a system may lack. If the errno says that the call is
// missing or forbidden, the error Is ErrNotSupported.
func notSupported(op string, errno unix.Errno) error {
	switch errno {
	case unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EINVAL, unix.EOPNOTSUPP:
		return &Error{Op: op, Err: ErrNotSupported, Detail: errno.Error()}
	}
	return os.NewSyscallError(op, errno)
}

func probeRobustList() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if errno := reregisterRobustList(); errno != 0 {
		return notSupported("set_robust_list", errno)
	}
	return nil
}

func probeWaitV() error {
	word := new(uint32)
	_, errno := futexWaitV([]WaitVEntry{NewWaitVEntry(word, 1)}, 0)
	runtime.KeepAlive(word)
	switch errno {
	case unix.EAGAIN, 0:
		return nil
	}
	return notSupported("futex_waitv", errno)
}

func probeMembarrier() error {
	mask, errno := membarrier(membarrierQuery)
	if errno != 0 {
		return notSupported("membarrier", errno)
	}
	const need = membarrierGlobalExpedited | membarrierRegisterGlobalExpedited
	if mask&need != need {
		return &Error{Op: "membarrier", Err: ErrNotSupported, Detail: "the kernel lacks the global expedited command"}
	}
	// A sandbox may allow the query for the commands of membarrier, and yet forbid this command. So execute the
	// command.
	if _, errno := membarrier(membarrierGlobalExpedited); errno != 0 {
		return notSupported("membarrier", errno)
	}
	return nil
}

func probeOFDLock() error {
	fd, err := unix.MemfdCreate("shmsync-probe", unix.MFD_CLOEXEC)
	if err != nil {
		// Byte locks may work even if memfds are forbidden, so try a file in /dev/shm.
		fd, err = unix.Open("/dev/shm", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return os.NewSyscallError("open", err) // it stays unknown whether byte locks work
	}
	defer unix.Close(fd)
	lock := byteLock(unix.F_WRLCK, 0)
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock); err != nil {
		return notSupported("fcntl", err.(unix.Errno))
	}
	return nil
}

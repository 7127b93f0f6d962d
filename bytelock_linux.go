package shmsync

import (
	"os"

	"golang.org/x/sys/unix"
)

// A byte lock is a lock on one byte of a file that belongs to an open file
// description: the kernel drops it when the last descriptor of that
// description is gone, which at the latest is some time after the process
// died. Unlike a robust list it works in every sandbox, and unlike a pid it
// means the same in every namespace, but it has to be asked.
//
// Each lock is its own probe: a call that works shows that the feature is there, and an error
// that Is ErrNotSupported says that it is not, here or on this file system.

// LockByte takes the byte lock at off through f, for writing, without waiting.
// It reports false when another open file description has it.
func LockByte(f *os.File, off int64) (bool, error) {
	if err := FeatureOFDLock.refused(); err != nil {
		return false, err
	}
	lock := byteLock(unix.F_WRLCK, off)
	switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err {
	case nil:
		FeatureOFDLock.worked()
		return true, nil
	case unix.EAGAIN, unix.EACCES:
		return false, nil
	default:
		return false, notSupported("fcntl", err.(unix.Errno))
	}
}

// UnlockByte gives the byte lock at off back.
func UnlockByte(f *os.File, off int64) error {
	lock := byteLock(unix.F_UNLCK, off)
	return os.NewSyscallError("fcntl", unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock))
}

// ByteLocked reports whether an open file description other than that of f
// holds the byte lock at off.
func ByteLocked(f *os.File, off int64) (bool, error) {
	if err := FeatureOFDLock.refused(); err != nil {
		return false, err
	}
	lock := byteLock(unix.F_WRLCK, off)
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, notSupported("fcntl", err.(unix.Errno))
	}
	FeatureOFDLock.worked()
	return lock.Type != unix.F_UNLCK, nil
}

func byteLock(kind int16, off int64) unix.Flock_t {
	return unix.Flock_t{Type: kind, Whence: unix.SEEK_SET, Start: off, Len: 1}
}

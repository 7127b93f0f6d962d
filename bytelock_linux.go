package shmsync

import (
	"os"

	"golang.org/x/sys/unix"
)

// A byte lock is a lock on one byte of a file. It belongs to an open file description. The kernel releases the lock
// when the last descriptor of that description is closed. If the process dies, the kernel closes its descriptors, after
// some time. Unlike a robust list, a byte lock works in every sandbox. Unlike a pid, it means the same in every
// namespace. But the kernel does not tell other processes when a byte lock ends, so they have to ask.
//
// LockByte and ByteLocked need no probe. If such a call succeeds, byte locks exist. If its error Is ErrNotSupported,
// byte locks are missing on this system or on this file system.

// LockByte takes an exclusive byte lock at off through f, without waiting. It reports false if
// another open file description has the lock.
func LockByte(f *os.File, off int64) (bool, error) {
	if err := FeatureOFDLock.refused(); err != nil {
		return false, err
	}
	lock := byteLock(unix.F_WRLCK, off)
	switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err {
	case nil:
		FeatureOFDLock.worked()
		return true, nil
	case unix.EAGAIN:
		return false, nil
	case unix.EACCES: // the lock is taken, or a security module forbids it
		if locked, asked := ByteLocked(f, off); asked == nil && locked {
			return false, nil
		}
		return false, notSupported("fcntl", err.(unix.Errno))
	default:
		return false, notSupported("fcntl", err.(unix.Errno))
	}
}

// UnlockByte releases the byte lock at off.
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

//go:build !plan9

package shmsync

import "syscall"

// Errno is an error number. It is [syscall.Errno], except on Plan 9. That system has no error numbers, so Errno is a
// type of its own there.
type Errno = syscall.Errno

const (
	eINVAL    = syscall.EINVAL
	eNOENT    = syscall.ENOENT
	eBADF     = syscall.EBADF
	eNOSPC    = syscall.ENOSPC
	eNOTSUP   = syscall.ENOTSUP
	ePROTO    = syscall.EPROTO
	eCANCELED = syscall.ECANCELED
)

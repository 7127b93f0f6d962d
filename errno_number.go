//go:build !plan9

package shmsync

import "syscall"

// Errno is an error number: [syscall.Errno]. On Plan 9, which has no error numbers, it is a type
// of its own.
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

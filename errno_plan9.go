package shmsync

import "strconv"

// Plan 9 identifies errors by strings and has no error numbers. Here the errors have the numbers of Linux, so that
// programs that use their names compile.
const (
	eINVAL          = Errno(0x16)
	eNOENT          = Errno(0x2)
	eBADF           = Errno(0x9)
	eNOSPC          = Errno(0x1c)
	eNOTSUP         = Errno(0x5f)
	ePROTO          = Errno(0x47)
	eCANCELED       = Errno(0x7d)
	eOWNERDEAD      = Errno(0x82)
	eNOTRECOVERABLE = Errno(0x83)
)

// Errno is an error number. Plan 9 has no error numbers, so there Errno is a type of its own, with the numbers of
// Linux. On other systems Errno is syscall.Errno.
type Errno uintptr

// Error implements error.
func (e Errno) Error() string { return "errno " + strconv.Itoa(int(e)) }

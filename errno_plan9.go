package shmsync

import "strconv"

// Plan 9 tells errors by strings. The errors of the library have the numbers of Linux here, so that
// programs that name them build.
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

// Errno is an error number. On Plan 9, which has none, it is a type of its own with the numbers
// of Linux; elsewhere it is syscall.Errno.
type Errno uintptr

// Error implements error.
func (e Errno) Error() string { return "errno " + strconv.Itoa(int(e)) }

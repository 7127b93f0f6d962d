package shm

import "github.com/shmsync/shmsync"

// Plan 9 tells errors by strings; the numbers are those of Linux.
const (
	eAGAIN = shmsync.Errno(0xb)
	eFBIG  = shmsync.Errno(0x1b)
)

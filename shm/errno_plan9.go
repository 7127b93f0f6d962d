package shm

import "github.com/shmsync/shmsync"

// Plan 9 identifies errors by strings. These numbers are those of Linux.
const (
	eAGAIN = shmsync.Errno(0xb)
	eFBIG  = shmsync.Errno(0x1b)
)

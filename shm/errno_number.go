//go:build !plan9

package shm

import "syscall"

const (
	eAGAIN = syscall.EAGAIN
	eFBIG  = syscall.EFBIG
)

//go:build !linux && !plan9

package shmsync

import "syscall"

// Some systems have no names for these errors. The values are those of Linux.
const (
	eOWNERDEAD      = syscall.Errno(0x82)
	eNOTRECOVERABLE = syscall.Errno(0x83)
)

//go:build !linux && !plan9

package shmsync

import "syscall"

// The package syscall of some systems has no names for these errors. The values here are those of Linux.
const (
	eOWNERDEAD      = syscall.Errno(0x82)
	eNOTRECOVERABLE = syscall.Errno(0x83)
)

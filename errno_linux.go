package shmsync

import "syscall"

const (
	eOWNERDEAD      = syscall.EOWNERDEAD
	eNOTRECOVERABLE = syscall.ENOTRECOVERABLE
)

//go:build !(linux && amd64 && gc && !noasm)

package asm

// CPU returns the number of the CPU on which the caller runs, and the number of the CPU's NUMA node. Both are hints,
// because the caller may have moved to another CPU when CPU returns. CPU makes no system call. It returns false for ok
// if it would need a system call. In this build, that is always so.
func CPU() (cpu, node uint32, ok bool) { return 0, 0, false }

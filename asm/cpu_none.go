//go:build !(linux && amd64 && gc && !noasm)

package asm

// CPU returns the number of the CPU that the caller runs on and of the CPU's
// NUMA node. Both are hints: the caller may have moved before it looks at them.
// It makes no system call; where it would have to, as here, ok is false.
func CPU() (cpu, node uint32, ok bool) { return 0, 0, false }

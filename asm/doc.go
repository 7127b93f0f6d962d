// Package asm has the few operations that Go cannot express: a pause in a spin loop, a fence between loads, a
// release store without a full barrier, the CPU on which the caller runs, and the identity of its goroutine.
//
// A portable version does the same operations in Go. It replaces the assembly on other architectures,
// with other compilers, and with the build tag noasm. It needs sync/atomic, which is the only import
// of this package.
//
// An assembly function is never inlined, so a call costs one to two nanoseconds. A goroutine inside such a
// function cannot be preempted, so a garbage collection that begins meanwhile has to wait for the end of the
// function. Therefore the loop of [Pause] is inside the assembly, which costs one call for the whole loop, and
// callers keep each call of Pause to some 10 µs.
package asm

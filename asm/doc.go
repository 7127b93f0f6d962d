// Package asm has the few operations that Go cannot express: a pause in a spin loop, a
// fence between loads, a release store without a full barrier, and the CPU on which the
// caller runs.
//
// It imports nothing but sync/atomic, for the portable version: the same operations in Go,
// which replace the assembly on other architectures, with other compilers, and with the
// build tag noasm.
//
// An assembly function is never inlined: a call costs one to two nanoseconds. A goroutine
// inside one cannot be preempted, so a garbage collection that begins meanwhile waits for
// its end. So the loop of [Pause] is inside the assembly, to pay for the call once, and
// callers keep each call of it to some 10 µs.
package asm

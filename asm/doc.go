// Package asm holds the few operations that cannot be said in Go: a pause in a
// spin loop, a fence between loads, a release store that is no more than that,
// and the CPU that the caller runs on.
//
// It imports nothing but sync/atomic, and that for the twin: the same operations
// in portable Go, which replace the assembly on other architectures, with other
// compilers, and with the build tag noasm.
//
// An assembly function is never inlined: a call costs one to two nanoseconds. A
// goroutine inside one cannot be preempted: a garbage collection that begins
// meanwhile waits for its end. So the loop of [Pause] is inside the assembly, to
// pay for the call once, and callers keep each call of it to some 10 µs.
package asm

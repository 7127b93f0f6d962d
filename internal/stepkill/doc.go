// Package stepkill kills a process between two machine instructions of an operation, and
// checks what that leaves behind.
//
// A victim runs the operation on a thread that the tester single-steps ([Tracer]). The
// tester reads the arena's bytes after each instruction. So it knows where a death leaves
// another state than one instruction earlier: where the bytes have changed, where a system
// call has returned, and where the victim sleeps. That gives two ways to cover all
// instructions of an operation:
//
//   - The tester kills a victim, by SIGKILL, at each of those places in turn, or after any
//     number of instructions, while others live, wait and go on.
//   - The bytes after each instruction are what a death of all processes at that moment
//     leaves. Each distinct image goes into a file of its own, which a newcomer joins.
//
// The scenes, which combine an operation with a situation, are in the tests.
package stepkill

// Package stepkill kills a process between two machine instructions of an operation, and checks the state that
// this leaves behind.
//
// A victim runs the operation on a thread that the tester single-steps ([Tracer]). The tester reads the bytes of
// the arena after each instruction. So it knows the places where a death leaves another state than a death one
// instruction earlier: where the bytes have changed, where a system call has returned, and where the victim
// sleeps. There are two ways to cover all instructions of an operation:
//
//   - The tester kills a victim, by SIGKILL, at each of those places in turn, or after any
//     number of instructions, while other processes live, wait and go on.
//   - The bytes after each instruction are what remains if all processes die at that moment.
//     The tester writes each distinct image to a file of its own, which a newcomer joins.
//
// The scenes, which combine an operation with a situation, are in the tests.
package stepkill

// Package selftest tests on a host whether the promises of the library hold there.
//
// A proof is the test of one promise. It starts agents, which are processes with a role, and checks what they print.
// Proofs measure nothing, so they are also useful where times have no meaning, as in an emulator. A proof that this
// host cannot run is skipped, with the reason.
package selftest

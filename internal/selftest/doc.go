// Package selftest proves on a host that the promises of the library hold there.
//
// A proof starts agents, which are processes with a role, and checks what they say. It measures
// nothing, so that it also means something where time does not: in an emulator. A proof that this
// host cannot show is skipped, with the reason.
package selftest

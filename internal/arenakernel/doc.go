// Package arenakernel is the implementation of package arena: the layout of an arena, its
// allocator, its directory, its participants and their deaths. It also implements the wait nodes
// and announce records, which let waits survive a death.
//
// Package arena is the interface for users. Package arenakernel also exports what package prims,
// internal/park, the commands and the tests of this module need to define kinds of objects and to
// wait for objects. Packages outside this module cannot import it. [Arena] has the same fields as
// arena.Arena, so a conversion between pointers to them costs nothing.
package arenakernel

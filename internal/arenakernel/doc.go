// Package arenakernel is the implementation of package arena: the layout of an arena, its
// allocator, directory, participants and deaths, and the wait nodes and announce records
// through which waits survive a death.
//
// Package arena is the interface for users. This package also has what package prims,
// internal/park, the commands and the tests of this module need to define kinds of objects and to
// wait for them. Packages outside this module cannot import it. [Arena] has the same fields as
// arena.Arena, so a conversion between their pointers costs nothing.
package arenakernel

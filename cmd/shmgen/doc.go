// Shmgen writes a C header for Go types whose values live in shared memory, so that a type is
// declared once for both languages.
//
//	//go:generate go run github.com/shmsync/shmsync/cmd/shmgen -type Ledger -o ledger_shm.h
//
// The header declares the struct, asserts its size and the offsets of its fields, and has the
// description of the type, which an object in the arena keeps. It has functions that open a Value, a
// Synchronized and a Queue of the type, and that look at blocks of the arena as values of the type.
// The page docs/types.md has the rules.
package main

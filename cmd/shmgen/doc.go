// Shmgen writes a C header for Go types whose values live in shared memory, so that a type is declared only once for
// both languages.
//
//	//go:generate go run github.com/shmsync/shmsync/cmd/shmgen -type Ledger -o ledger_shm.h
//
// The header declares the struct, and asserts its size and the offsets of its fields. It contains the description of
// the type, which is stored with each object. Its functions open a Value, a Synchronized and a Queue of the type, and
// give access to blocks of the arena as values of the type. The page docs/types.md has the rules.
package main

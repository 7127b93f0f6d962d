// Package shmsync is the floor of a library of synchronization primitives
// that live in shared memory and are used by several processes at once.
//
// Most programs want [github.com/shmsync/shmsync/arena], to create or join a
// shared arena, and [github.com/shmsync/shmsync/prims], for Mutex, Futex and
// their kin. This package holds what both stand on: the raw Linux futex, the
// probes that say which kernel features work here, and the errors that every
// package of the module returns.
//
// The module needs Linux on amd64 or arm64. On other systems it builds, and
// every operation reports [ErrNotSupported].
//
// # Trust
//
// Processes that share an arena cooperate, but none of them is trusted to be
// alive or correct: a peer may be killed at any instruction, and bytes that it
// wrote are validated before they are used. A peer that writes impossible
// bytes causes [ErrCorrupt], never an endless loop or a wild access.
package shmsync

// Package shmsync is the lowest layer of a library of synchronization primitives that live
// in shared memory and are used by several processes at once.
//
// Most programs want [github.com/shmsync/shmsync/arena], to create or join a shared arena,
// and [github.com/shmsync/shmsync/prims], for Mutex, Futex and the other primitives. This
// package has what both need: the raw Linux futex, the probes that say which kernel
// features work on this host, and the errors that every package of the module returns.
//
// The module needs Linux on amd64 or arm64. On other systems it builds, and every operation
// reports [ErrNotSupported].
//
// # Trust
//
// Processes that share an arena cooperate, but no process trusts another to be alive or
// correct. A peer may be killed at any instruction, and this module validates the bytes of
// a peer before it uses them. A peer that writes impossible bytes causes [ErrCorrupt],
// never an endless loop or a wild access.
package shmsync

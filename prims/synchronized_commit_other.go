//go:build !amd64

package prims

import "sync/atomic"

// commitStore makes commit number n of a Synchronized take effect, by a store to the word current.
//
// The function is not inlined. So the compiler cannot move the stores of the caller to after the call, and
// cannot drop them. On arm64 the atomic store is the instruction STLR: the CPU makes all earlier stores visible
// before it.
//
//go:noinline
func commitStore(current *atomic.Uint64, n uint64) { current.Store(n) }

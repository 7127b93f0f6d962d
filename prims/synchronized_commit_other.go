//go:build !amd64

package prims

import "sync/atomic"

// commitStore makes the commit n of a Synchronized.
//
// The function is not inlined, so the compiler neither moves the stores of the caller behind it
// nor drops them. On arm64 the atomic store is STLR: the CPU keeps the earlier stores in front of
// it.
//
//go:noinline
func commitStore(current *atomic.Uint64, n uint64) { current.Store(n) }

//go:build !amd64

package prims

import "sync/atomic"

// commitStore makes the commit n of a Synchronized.
//
// It is out of line, so the compiler neither moves the stores of the caller behind it nor
// drops them. On arm64 the atomic store is STLR: the CPU keeps the stores before it in front.
//
//go:noinline
func commitStore(current *atomic.Uint64, n uint64) { current.Store(n) }

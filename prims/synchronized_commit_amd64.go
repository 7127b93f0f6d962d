package prims

import "sync/atomic"

// commitStore makes the commit n of a Synchronized.
//
// The function is not inlined, so the compiler neither moves the stores of the caller behind it
// nor drops them. On amd64 a plain store is a release; Go's atomic store is a locked exchange.
// TestCommitOrder checks the machine code of a caller.
//
//go:noinline
func commitStore(current *atomic.Uint64, n uint64) { storeWord(current, n) }

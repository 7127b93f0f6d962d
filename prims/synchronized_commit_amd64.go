package prims

import "sync/atomic"

// commitStore makes commit number n of a Synchronized take effect, by a store to the word current.
//
// The function is not inlined. So the compiler cannot move the stores of the caller to after the call, and
// cannot drop them. On amd64 a plain store is a release and is enough; Go's atomic store would be a locked
// exchange. TestCommitOrder checks the machine code of a caller.
//
//go:noinline
func commitStore(current *atomic.Uint64, n uint64) { storeWord(current, n) }

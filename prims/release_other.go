//go:build !amd64

package prims

import "sync/atomic"

// releaseBiased gives a biased hold back and reports whether there are waiters. On
// arm64 the atomic store is STLR, which costs no barrier, and the load is LDAR,
// which does not pass it.
func releaseBiased(owner, wake *uint32) bool {
	atomic.StoreUint32(owner, 0)
	return atomic.LoadUint32(wake)&1 != 0
}

// putBetween is put between the stores before it and those after it, as others see
// them: the store is a release, and the load, which does not pass it, an acquire.
func putBetween(w *atomic.Uint64, v uint64) {
	w.Store(v)
	w.Load()
}

//go:build !amd64

package prims

import "sync/atomic"

// storesInOrder says that other CPUs see all stores of a CPU in the order of the program; see storeWord.
const storesInOrder = false

// casIsFence says that a CAS that succeeds is a full fence; see orderLoads.
const casIsFence = false

// releaseBiased releases a biased hold, and reports whether there are waiters. On arm64 the atomic store is the
// instruction STLR, which needs no barrier. The load is LDAR, which the CPU does not execute before an earlier
// STLR.
func releaseBiased(owner, wake *uint32) bool {
	atomic.StoreUint32(owner, 0)
	return atomic.LoadUint32(wake)&1 != 0
}

// putBetween stores v so that other CPUs see this store after the earlier ones and before the later ones. The store
// is a release, so it comes after the earlier stores. After it, putBetween loads the same word. The CPU does not
// execute this load before the store. The load is an acquire, so the later stores come after the load.
func putBetween(w *atomic.Uint64, v uint64) {
	w.Store(v)
	w.Load()
}

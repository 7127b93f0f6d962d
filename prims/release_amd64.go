package prims

import "sync/atomic"

// storesInOrder says that other CPUs see all stores of a CPU in the order of the program; see storeWord.
const storesInOrder = true

// casIsFence says that a CAS that succeeds is a full fence; see orderLoads.
const casIsFence = true

// releaseBiased releases a biased hold, that is, a hold that ends with a plain store. It reports whether there are
// waiters. It stores the owner word and then loads the wake word, with no fence between the two, so the CPU may
// execute the load first. The fence that prevents a lost wake is executed by a waiter instead.
//
// On amd64 every store is a release, so a plain store is enough. The memory model of Go does not cover such a use
// of a plain store. But an atomic store of Go is a locked exchange, which costs as much as a fence. A test checks
// the machine code of a caller: the compiler has to keep the store in front of the load.
func releaseBiased(owner, wake *uint32) bool {
	*owner = 0
	// sync(waitlist.announce): acquire
	return atomic.LoadUint32(wake)&1 != 0
}

// putBetween stores v so that other CPUs see this store after the earlier ones and before the
// later ones. On amd64 they see all stores in the order of the program.
func putBetween(w *atomic.Uint64, v uint64) { storeWord(w, v) }

package prims

import "sync/atomic"

// releaseBiased releases a biased hold by a release store that the load of the wake word may
// overtake, and reports whether there are waiters. A waiter makes up for the missing fence with a
// fence of its own.
//
// On amd64 every store is a release, so a plain store is enough. It is outside the memory model
// of Go, whose atomic store is a locked exchange and costs what this protocol saves. A test on
// the machine code of a caller checks that the compiler keeps the store in front of the load.
func releaseBiased(owner, wake *uint32) bool {
	*owner = 0
	// sync(waitlist.announce): acquire
	return atomic.LoadUint32(wake)&1 != 0
}

// putBetween stores v so that other CPUs see this store after the earlier ones and before the
// later ones. On amd64 they see all stores in the order of the program.
func putBetween(w *atomic.Uint64, v uint64) { storeWord(w, v) }

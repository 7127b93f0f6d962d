package prims

import "sync/atomic"

// releaseBiased gives a biased hold back, by a release store that the load of
// the wake word may pass, and reports whether there are waiters. A waiter makes up
// for the missing fence with one of its own.
//
// On amd64 every store is a release, so a plain one does. It stands outside the
// memory model of Go, whose atomic store is a locked exchange and costs what
// this protocol is there to save. That the compiler keeps the store in front of
// the load is checked by a test on the machine code of a caller.
func releaseBiased(owner, wake *uint32) bool {
	*owner = 0
	// sync(waitlist.announce): acquire
	return atomic.LoadUint32(wake)&1 != 0
}

// putBetween is put between the stores before it and those after it, as others see
// them: on amd64 all stores are seen in the order of the program.
func putBetween(w *atomic.Uint64, v uint64) { storeWord(w, v) }

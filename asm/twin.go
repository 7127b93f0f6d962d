package asm

import "sync/atomic"

// The portable twin. It is compiled everywhere, so that the tests can compare it
// with the assembly in one program.

var (
	pauseWord uint32 // never written
	fenceWord uint32 // always 0
)

// pauseTwin loads a word that stays in the first-level cache. The loads are
// atomic, so that the compiler has to keep them.
func pauseTwin(n uint32) {
	for range n {
		atomic.LoadUint32(&pauseWord)
	}
}

// loadFenceTwin orders more than loads, since sequentially consistent operations are all
// that Go offers. The store stays behind the accesses before it (release), the load stays
// in front of those after it (acquire), and the two stay in order. One of them alone does
// not suffice. A read-modify-write does not suffice either: where it is a loop of
// load-exclusive and store-exclusive, accesses before and after it may meet between the two.
func loadFenceTwin() {
	atomic.StoreUint32(&fenceWord, 0)
	atomic.LoadUint32(&fenceWord)
}

func storeRelease32Twin(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

package asm

import "sync/atomic"

// This file has the portable twin. It is compiled in every build, so that the tests can compare it with the
// assembly in one program.

var (
	pauseWord uint32 // never written
	fenceWord uint32 // always 0
)

// pauseTwin loads a word that stays in the first-level cache. The loads are atomic, so that the compiler cannot
// remove them.
func pauseTwin(n uint32) {
	for range n {
		atomic.LoadUint32(&pauseWord)
	}
}

// loadFenceTwin orders more than loads, because Go offers only sequentially consistent operations. The store stays
// after the accesses before it (release), the load stays before the accesses after it (acquire), and the two stay in
// order. The store alone does not suffice, and neither does the load. A read-modify-write does not suffice either: on a
// machine where it is a loop of load-exclusive and store-exclusive, accesses from before and after it can move between
// these two instructions.
func loadFenceTwin() {
	atomic.StoreUint32(&fenceWord, 0)
	atomic.LoadUint32(&fenceWord)
}

func storeRelease32Twin(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// goroutineTwin returns 0, because Go itself has no fast way to identify a goroutine.
func goroutineTwin() uintptr { return 0 }

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

// loadFenceTwin orders more than loads, having only sequentially consistent
// operations to do it with. The store follows all that precedes it (release), the
// load precedes all that follows it (acquire), and the two stay in order. Either
// alone would not do, and neither would a read-modify-write, whose two halves may
// let what is around them meet in between where it is a load-exclusive loop.
func loadFenceTwin() {
	atomic.StoreUint32(&fenceWord, 0)
	atomic.LoadUint32(&fenceWord)
}

func storeRelease32Twin(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

//go:build (amd64 || arm64) && gc && !noasm

package asm

// Pause executes n spin-wait hints: PAUSE on amd64, ISB on arm64. The hints leave the resources of the core to the
// other hardware thread of the core. They also keep a spin loop from filling the pipeline with speculative loads.
//
// A hint takes 10 to 140 cycles, depending on the processor, so callers measure its duration. A call should take
// less than about 10 µs, because it cannot be preempted.
//
//go:noescape
func Pause(n uint32)

// LoadFence orders loads: the loads before it in program order take effect before the loads after it. It is for
// the reader of a seqlock, whose loads of the data must not move below the second load of the sequence. An atomic
// load alone does not prevent that, because it orders only the accesses after it.
//
//go:noescape
func LoadFence()

// StoreRelease32 stores v to *p after everything that precedes it in program order. Unlike an atomic store, the call
// does not order what follows: a later load of another word may take effect before the store. The race detector does
// not see the store.
//
//go:noescape
func StoreRelease32(p *uint32, v uint32)

// Goroutine returns a number that identifies the calling goroutine. A goroutine keeps its number as long as it lives,
// and no other goroutine has the number at the same time. Later goroutines may get it. The number is even, and 0 if the
// goroutine is not known.
//
// The number is the address of the runtime's g structure. The runtime neither moves nor frees this structure, and uses
// it again only after the goroutine has ended.
//
//go:noescape
func Goroutine() uintptr

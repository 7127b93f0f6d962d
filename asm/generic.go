//go:build !((amd64 || arm64) && gc && !noasm)

package asm

// Pause executes n spin-wait hints, each of which is an atomic load here.
func Pause(n uint32) { pauseTwin(n) }

// LoadFence orders loads: those before it in program order take effect before
// those after it.
func LoadFence() { loadFenceTwin() }

// StoreRelease32 stores v to *p after everything that precedes it in program
// order. Here it is an atomic store, which orders more than it needs to.
func StoreRelease32(p *uint32, v uint32) { storeRelease32Twin(p, v) }

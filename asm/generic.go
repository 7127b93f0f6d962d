//go:build !((amd64 || arm64) && gc && !noasm)

package asm

// Pause executes n spin-wait hints. Here each hint is an atomic load.
func Pause(n uint32) { pauseTwin(n) }

// LoadFence orders loads: the loads before it in program order take effect before the loads after it.
func LoadFence() { loadFenceTwin() }

// StoreRelease32 stores v to *p after all accesses that precede it in program order. Here it is an atomic store,
// which orders more than necessary.
func StoreRelease32(p *uint32, v uint32) { storeRelease32Twin(p, v) }

// Goroutine returns 0, which says that the goroutine is not known.
func Goroutine() uintptr { return goroutineTwin() }

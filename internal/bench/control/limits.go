//go:build linux

package control

// MaxLines is the most lines that a critical section writes.
const MaxLines = ScratchKeys * 8 / 64

// MaxLocks is the most keys that one hold takes.
const MaxLocks = 16

// The most items that a queue takes, and that one call moves.
const (
	MaxCapacity = scratchRing
	MaxBatch    = 256
)

//go:build linux

package control

// MaxLines is the largest number of cache lines that a critical section writes.
const MaxLines = ScratchKeys * 8 / 64

// MaxLocks is the largest number of keys that one hold takes.
const MaxLocks = 16

// The largest numbers of items: in a queue, and in one call that moves items.
const (
	MaxCapacity = scratchRing
	MaxBatch    = 256
)

// The greatest numbers of keys and producers in the plan, and the size of the scratch.
const (
	scratchBytes = 128 << 10
	ScratchDraws = 4096
	ScratchKeys  = 4096
	ScratchParts = 256 // parties of a barrier cell
	ScratchLanes = 64  // producers of a queue cell
	scratchRing  = 2048
	ScratchTrips = 64 // timed items of one producer that can be on their way
)

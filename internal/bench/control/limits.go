//go:build linux

package control

// MaxLines is the largest number of cache lines that a critical section writes.
const MaxLines = ScratchKeys * 8 / 64

// MaxLocks is the largest number of keys that a thread locks in one call.
const MaxLocks = 16

// These are the largest number of items in a queue, and the largest number of items that one call moves.
const (
	MaxCapacity = scratchRing
	MaxBatch    = 256
)

// These are the size of a Scratch, the memory in which workers check what they measure, and the lengths of its arrays.
// The lengths limit the numbers of keys, producers and so on that a plan can have.
const (
	scratchBytes = 128 << 10
	ScratchDraws = 4096
	ScratchKeys  = 4096
	ScratchParts = 256 // parties of a barrier cell
	ScratchLanes = 64  // producers of a queue cell
	scratchRing  = 2048
	ScratchTrips = 64 // timed items of one producer that can be in the queue at the same time
)

package arenakernel

import (
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/race"
)

// memory is a mapped segment. Every conversion of an offset to an address uses a method of memory.
type memory struct {
	bytes []byte
	base  unsafe.Pointer
	size  uint64
	// fetch is set for an Inspector. It reads bytes from the file unless the copy already contains
	// them.
	fetch func(off, n uint64)
	// data is set for an Inspector. It returns the first offset from off on that is not in a hole of the file.
	data func(off uint64) uint64
}

func newMemory(b []byte) memory {
	return memory{bytes: b, base: unsafe.Pointer(unsafe.SliceData(b)), size: uint64(len(b))}
}

// within reports whether n bytes at off are in the segment, and whether off is a multiple of align,
// a power of two.
func (m *memory) within(off Offset, n, align uint64) bool {
	return uint64(off) <= m.size && n <= m.size-uint64(off) && uint64(off)&(align-1) == 0
}

// at returns the address of the n bytes at off. The caller has validated off. If off is invalid, which is a bug
// in this package, at panics.
func (m *memory) at(off Offset, n, align uint64) unsafe.Pointer {
	if !m.within(off, n, align) {
		panic("shmsync: offset " + off.String() + " out of the arena")
	}
	if m.fetch != nil {
		m.fetch(uint64(off), n)
	}
	// SAFETY: off is checked against the length of the mapping, which no peer can change, so the
	// result is within the mapping.
	return unsafe.Add(m.base, uintptr(off))
}

// u32 returns the 32-bit word at off.
func (m *memory) u32(off Offset) *atomic.Uint32 {
	return (*atomic.Uint32)(m.at(off, 4, 4))
}

// words returns the n 32-bit words at off.
func (m *memory) words(off Offset, n uint64) []atomic.Uint32 {
	// SAFETY: at checks that the n words are within the mapping and aligned. An atomic.Uint32 has the
	// size and the alignment of a uint32, and every value of these bytes is valid.
	return unsafe.Slice((*atomic.Uint32)(m.at(off, n*4, 4)), n)
}

// u64 returns the 64-bit word at off.
func (m *memory) u64(off Offset) *atomic.Uint64 {
	return (*atomic.Uint64)(m.at(off, 8, 8))
}

// peek32 loads the word at off, although its owner may write the same bytes with plain stores at
// the same time. The caller checks by other means whether the value is valid. The race detector,
// which checks the arenas of package arenatest, would report such accesses as a race.
//
//go:norace
func (m *memory) peek32(off Offset) uint32 {
	if !race.Enabled {
		return m.u32(off).Load()
	}
	return *(*uint32)(m.at(off, 4, 4))
}

// peek64 is peek32 for a 64-bit word.
//
//go:norace
func (m *memory) peek64(off Offset) uint64 {
	if !race.Enabled {
		return m.u64(off).Load()
	}
	return *(*uint64)(m.at(off, 8, 8))
}

// slice returns the n bytes at off.
func (m *memory) slice(off Offset, n uint64) []byte {
	return unsafe.Slice((*byte)(m.at(off, n, 1)), n)
}

// wordPtr returns w as the pointer that futex calls take.
func wordPtr(w *atomic.Uint32) *uint32 { return (*uint32)(unsafe.Pointer(w)) }

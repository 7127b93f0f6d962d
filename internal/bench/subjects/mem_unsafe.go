//go:build linux

package subjects

import "unsafe"

// wordsOf returns the memory as 64-bit words. The memory begins at the start of a cache line.
func wordsOf(b []byte) []uint64 {
	// SAFETY: b starts at an address that is a multiple of 8, because it is a block of an arena or a mapping, and has
	// at least len(b)/8 words.
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

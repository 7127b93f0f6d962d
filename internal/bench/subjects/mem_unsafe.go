//go:build linux

package subjects

import "unsafe"

// wordsOf returns the memory b as 64-bit words. The memory must be a block of an arena, or a mapping.
func wordsOf(b []byte) []uint64 {
	// SAFETY: blocks of an arena and mappings start at a multiple of 8, and b has at least len(b)/8 words.
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

//go:build linux

package subjects

import "unsafe"

// wordsOf returns the memory as 64-bit words. The memory begins at the start of a cache line.
func wordsOf(b []byte) []uint64 {
	// SAFETY: blocks of an arena are aligned to 64 bytes, and the length is in
	// words.
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

//go:build linux

package subjects

import "unsafe"

// wordsOf views memory that begins with a cache line as words.
func wordsOf(b []byte) []uint64 {
	// SAFETY: blocks of an arena are aligned to 64 bytes, and the length is in
	// words.
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

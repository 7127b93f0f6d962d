//go:build linux

package cinterop

import (
	"sync/atomic"
	"unsafe"
)

// roundsOf returns the last word of a block.
func roundsOf(b []byte) *atomic.Uint64 {
	// SAFETY: a block begins at a multiple of 64, and the length of b is a multiple of 8. So the word is aligned and
	// within b, which stays mapped while the arena is open.
	return (*atomic.Uint64)(unsafe.Pointer(&b[len(b)-8]))
}

//go:build linux

package cinterop

import (
	"sync/atomic"
	"unsafe"
)

// roundsOf is the last word of a block.
func roundsOf(b []byte) *atomic.Uint64 {
	// SAFETY: blocks begin at a multiple of 64 and this one is a multiple of 8 long, so the word is
	// aligned and within b, which stays mapped while the arena is open.
	return (*atomic.Uint64)(unsafe.Pointer(&b[len(b)-8]))
}

//go:build linux

package cinterop

import "unsafe"

// boardOf views the bytes of a team's board.
func boardOf(mem []byte) *board {
	_ = mem[unsafe.Sizeof(board{})-1]
	// SAFETY: the bytes are there and aligned to a cache line, and a board has no pointers.
	return (*board)(unsafe.Pointer(unsafe.SliceData(mem)))
}

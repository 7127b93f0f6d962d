//go:build linux

package cinterop

import "unsafe"

// boardOf views the bytes of a team's board.
func boardOf(mem []byte) *board {
	_ = mem[unsafe.Sizeof(board{})-1]
	// SAFETY: the bytes are there and aligned to a cache line, and a board has no pointers.
	return (*board)(unsafe.Pointer(unsafe.SliceData(mem)))
}

// sigBoardOf views the bytes of the board of the processes that share a SignalWaker.
func sigBoardOf(mem []byte) *sigBoard {
	_ = mem[unsafe.Sizeof(sigBoard{})-1]
	// SAFETY: as above.
	return (*sigBoard)(unsafe.Pointer(unsafe.SliceData(mem)))
}

//go:build linux

package cinterop

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapWords maps the first page of a file as words.
func mapWords(f *os.File) (*[1024]atomic.Uint32, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	// SAFETY: the mapping is page-aligned, has 4096 bytes, and stays until the process ends.
	return (*[1024]atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

// boardOf returns the board of a worker group, which lies in mem. A board is the data that the processes of the group
// share.
func boardOf(mem []byte) *board {
	_ = mem[unsafe.Sizeof(board{})-1]
	// SAFETY: the bytes are there and aligned to a cache line, and a board has no pointers.
	return (*board)(unsafe.Pointer(unsafe.SliceData(mem)))
}

// sigBoardOf returns the board of the processes that share a SignalWaker. It lies in mem.
func sigBoardOf(mem []byte) *sigBoard {
	_ = mem[unsafe.Sizeof(sigBoard{})-1]
	// SAFETY: as above.
	return (*sigBoard)(unsafe.Pointer(unsafe.SliceData(mem)))
}

const txDataSize = uint64(unsafe.Sizeof(txData{}))

// txDataOf returns the data, in mem, that the transactions of a test change.
func txDataOf(mem []byte) *txData {
	_ = mem[txDataSize-1]
	// SAFETY: as above.
	return (*txData)(unsafe.Pointer(unsafe.SliceData(mem)))
}

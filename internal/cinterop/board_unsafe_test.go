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

// boardOf returns the memory mem as a board, the data that the processes of a worker group share.
func boardOf(mem []byte) *board {
	_ = mem[unsafe.Sizeof(board{})-1]
	// SAFETY: mem has the bytes and is aligned to a cache line, and a board has no pointers.
	return (*board)(unsafe.Pointer(unsafe.SliceData(mem)))
}

// sigBoardOf returns the memory mem as a sigBoard, the data of processes that share a SignalWaker.
func sigBoardOf(mem []byte) *sigBoard {
	_ = mem[unsafe.Sizeof(sigBoard{})-1]
	// SAFETY: as above.
	return (*sigBoard)(unsafe.Pointer(unsafe.SliceData(mem)))
}

const txDataSize = uint64(unsafe.Sizeof(txData{}))

// txDataOf returns the memory mem as the data that the transactions of a test change.
func txDataOf(mem []byte) *txData {
	_ = mem[txDataSize-1]
	// SAFETY: as above.
	return (*txData)(unsafe.Pointer(unsafe.SliceData(mem)))
}

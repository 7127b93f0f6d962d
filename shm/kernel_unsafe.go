//go:build linux

package shm

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mbind sets the NUMA policy of mem, which is page-aligned.
func mbind(mem []byte, mode uintptr, mask []uint64, flags uintptr) error {
	// The kernel reads one bit less than it is told.
	maxNode := uintptr(0)
	if len(mask) > 0 {
		maxNode = uintptr(len(mask))*64 + 1
	}
	// SAFETY: the kernel does not write to mem, and reads maxNode-1 bits, all
	// of which mask has. unsafe.SliceData(nil) is NULL, as no mask should be.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		mode, uintptr(unsafe.Pointer(unsafe.SliceData(mask))), maxNode, flags)
	if errno != 0 {
		return errno
	}
	return nil
}

// pageNodes stores in status, for successive pages of mem, the node that each
// is on, or a negative errno.
//
// Preconditions: mem has at least len(status) pages; status is not empty.
func pageNodes(mem []byte, pageSize int64, status []int32) error {
	addrs := make([]uintptr, len(status))
	base := uintptr(unsafe.Pointer(&mem[0]))
	for i := range addrs {
		addrs[i] = base + uintptr(i)*uintptr(pageSize)
	}
	// SAFETY: mem is a mapping, which the garbage collector does not move, so
	// its addresses may be kept as numbers. The kernel reads len(status)
	// addresses and writes as many words. Without a list of target nodes it
	// moves nothing.
	_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(len(status)),
		uintptr(unsafe.Pointer(&addrs[0])), 0, uintptr(unsafe.Pointer(&status[0])), 0)
	runtime.KeepAlive(addrs)
	if errno != 0 {
		return errno
	}
	return nil
}

// touch faults in each page of mem for writing. Adding nothing atomically
// changes no byte, whoever else is writing there.
func touch(mem []byte, pageSize int64) {
	for off := int64(0); off < int64(len(mem)); off += pageSize {
		// SAFETY: off is within mem and a multiple of the page size, as is
		// the start of mem, and a page holds more than four bytes.
		atomic.AddUint32((*uint32)(unsafe.Pointer(&mem[off])), 0)
	}
}

//go:build linux && race

package arenatest

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// remap maps other memory over b. unix.MmapPtr would convert the address that the kernel returns
// into a pointer, which checkptr refuses for an object of the Go heap.
func remap(b []byte, fd, flags int) error {
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, uintptr(unix.MAP_FIXED|flags), uintptr(fd), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

//go:build linux && !race

package arenatest

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// remap maps other memory over b.
func remap(b []byte, fd, flags int) error {
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_FIXED|flags)
	return err
}

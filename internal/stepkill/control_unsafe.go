//go:build linux

package stepkill

import (
	"os"
	"structs"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control is a page outside the arena through which tester and victim communicate.
type Control struct {
	_ structs.HostLayout
	// Tid is the ID of the thread that the tester is to step.
	//   writers: the victim, before it says that it is ready
	//   readers: the tester
	//   order:   relaxed; a pipe carries the edge
	//   futex:   none
	//   crash:   of no importance
	Tid atomic.Uint32
	// Gate, Began and Ended control the stepped operation. The victim waits until Gate is 1, and then begins the
	// operation. Began is 1 when the operation has begun, and Ended is 1 when it is over.
	//   writers: the tester (Gate), the victim
	//   readers: the other
	//   order:   acq_rel
	//   futex:   none
	//   crash:   of no importance
	Gate, Began, Ended atomic.Uint32
}

const controlBytes = 4096

// NewControl makes a page, and returns it with the file through which the victim maps it.
func NewControl() (*Control, *os.File, error) {
	fd, err := unix.MemfdCreate("stepkill", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "stepkill")
	if err := f.Truncate(controlBytes); err != nil {
		return nil, nil, err
	}
	c, err := OpenControl(f)
	return c, f, err
}

// OpenControl maps the page in f. The page stays mapped until Close.
func OpenControl(f *os.File) (*Control, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, controlBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// SAFETY: the mapping is as long as a page, aligned to one, and stays until Close.
	return (*Control)(unsafe.Pointer(unsafe.SliceData(b))), nil
}

// Close unmaps the page. Nobody may use c any more.
func (c *Control) Close() error {
	// SAFETY: OpenControl has mapped these bytes.
	return os.NewSyscallError("munmap", unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(c)), controlBytes)))
}

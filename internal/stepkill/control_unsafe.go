//go:build linux

package stepkill

import (
	"os"
	"structs"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control is a page by which tester and victim speak without the arena.
type Control struct {
	_ structs.HostLayout
	// Tid is the thread that is to be stepped.
	//   writers: the victim, before it says that it is ready
	//   readers: the tester
	//   order:   relaxed; a pipe carries the edge
	//   futex:   none
	//   crash:   of no importance
	Tid atomic.Uint32
	// Gate is what the victim spins on before the operation, and Began and Ended are
	// 1 when it begins and when it is over.
	//   writers: the tester (Gate), the victim
	//   readers: the other
	//   order:   acq_rel
	//   futex:   none
	//   crash:   of no importance
	Gate, Began, Ended atomic.Uint32
}

const controlBytes = 4096

// NewControl makes a page, and the file through which the victim maps it.
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

// OpenControl maps the page in f. It stays mapped.
func OpenControl(f *os.File) (*Control, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, controlBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// SAFETY: the mapping is as long as a page, aligned to one, and stays.
	return (*Control)(unsafe.Pointer(unsafe.SliceData(b))), nil
}
